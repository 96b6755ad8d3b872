#include "models/attention/kinds/relative.h"

namespace tapeformer {
namespace {

constexpr const char* kTransformerXl = "transformer-xl";

}  // namespace

AttentionKind make_transformer_xl_attention_kind() {
  const auto memory = [](const OptionValues& options) {
    return SegmentMemorySize{.tokens = options.get<int64_t>("memory")};
  };
  return {
      .name = kTransformerXl,
      .help = "softmax attention with relative positions to a segment and to the memory of earlier segments",
      .capabilities = make_relative_attention_capabilities(),
      .options = {make_memory_option(512), make_clamp_option()},
      .make = [memory](const OptionValues& options,
                       const AttentionSetup& setup) -> std::unique_ptr<Attention> {
        check_relative_attention_setup(kTransformerXl, setup);
        return std::make_unique<RelativeAttention>(
            RelativeAttentionOptions{memory(options), options.get<int64_t>("clamp")}, setup);
      },
      .compute_segment_memory_size = memory,
      .count_multiply_adds = count_relative_attention_multiply_adds,
      .test_options = {{"memory", int64_t{0}}},
      // Benchmark charts measure sequences without earlier segments, for which a memory would be empty. The
      // variant therefore has no memory.
      .variants = {{kTransformerXl, {{"memory", int64_t{0}}}}}};
}

}  // namespace tapeformer
