#include <cmath>

#include "models/attention/relative.h"
#include "models/layers/option_error.h"
#include "ops/linear.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kCompressive = "compressive";

// Attention of a Compressive Transformer (Rae et al. 2020). It is the attention of Transformer-XL with a
// second memory of compressed rows. Each compressed row represents SegmentMemorySize::compression_rate older
// inputs of the layer.
class CompressiveKind final : public RelativeAttention {
 public:
  CompressiveKind(const RelativeAttentionOptions& options, const std::string& compression,
                  const AttentionSetup& setup)
      : RelativeAttention(options, setup), compression_(compression) {
    if (memory_size().compressed_rows == 0 || compression != "convolution") return;
    const int64_t width = setup.heads * setup.dim, inputs = memory_size().compression_rate * width;
    const Initializer initializer = make_uniform_initializer(1 / std::sqrt(static_cast<double>(inputs)));
    add_parameter("compression.weight", weight_, {width, inputs}, initializer);
    add_parameter("compression.bias", bias_, {width}, initializer);
  }

  // The kernel size and the stride of the convolution are `rate`, so the convolution is computed as a linear
  // layer on spans of `rate` tokens.
  Tensor compress(const Tensor& x) const override {
    const int64_t batch = x.size(0), width = x.size(2), rate = memory_size().compression_rate,
                  rows = x.size(1) / rate;
    check(x.size(1) == rows * rate, kCompressive, "the number of tokens of ", x.shape(),
          " is not a multiple of the rate ", rate);
    if (compression_ == "convolution") return linear(reshape(x, {batch, rows, rate * width}), weight_, bias_);
    const Tensor spans = reshape(x, {batch, rows, rate, width});
    return compression_ == "mean" ? mean(spans, 2) : max(spans, 2);
  }

 private:
  std::string compression_;
  Tensor weight_, bias_;  // (width, rate * width) and (width,); undefined without a convolution
};

SegmentMemorySize compute_segment_memory_size(const OptionValues& options) {
  return {.tokens = options.get<int64_t>("memory"),
          .compressed_rows = options.get<int64_t>("compressed_memory"),
          .compression_rate = options.get<int64_t>("rate")};
}

std::unique_ptr<Attention> make_compressive(const OptionValues& options, const AttentionSetup& setup) {
  const SegmentMemorySize memory = compute_segment_memory_size(options);
  check_relative_attention_setup(kCompressive, setup);
  if (memory.compressed_rows > 0 && memory.tokens == 0)
    throw OptionError("compressed_memory",
                      concat_text("needs a memory of tokens: expected 0 with memory = 0, "
                                  "got ",
                                  memory.compressed_rows));
  if (memory.compressed_rows > 0 && memory.tokens % memory.compression_rate != 0)
    throw OptionError("memory", concat_text("expected a multiple of rate = ", memory.compression_rate,
                                            ", got ", memory.tokens));
  return std::make_unique<CompressiveKind>(RelativeAttentionOptions{memory, options.get<int64_t>("clamp")},
                                           options.get<std::string>("compression"), setup);
}

void check_segment_length(const OptionValues& options, int64_t length) {
  const SegmentMemorySize memory = compute_segment_memory_size(options);
  if (memory.compressed_rows > 0 && length % memory.compression_rate != 0)
    throw OptionError("rate", concat_text("expected a divisor of the segment length ", length, ", got ",
                                          memory.compression_rate));
}

std::vector<OptionSpec> compressive_options() {
  constexpr double kMaxTokens = 1 << 20;
  const OptionCondition compresses{.option = "compressed_memory"};
  return {make_memory_option(768),
          {.name = "compressed_memory",
           .default_value = int64_t{1152},
           .help = "rows of compressed tokens before the memory; 0: none",
           .min = 0,
           .max = kMaxTokens},
          {.name = "rate",
           .default_value = int64_t{3},
           .help = "tokens in a row; divides memory and the length of a segment",
           .min = 1,
           .max = kMaxTokens,
           .used_if = compresses},
          {.name = "compression",
           .default_value = std::string("convolution"),
           .help = "compresses the inputs of the layer",
           .choices = {"convolution", "mean", "max"},
           .used_if = compresses},
          make_clamp_option()};
}

}  // namespace

AttentionKind make_compressive_attention_kind() {
  return {.name = kCompressive,
          .help = "transformer-xl with a second memory of compressed tokens",
          .capabilities = make_relative_attention_capabilities(),
          .options = compressive_options(),
          .make = make_compressive,
          .check_length = check_segment_length,
          .compute_segment_memory_size = compute_segment_memory_size,
          .count_multiply_adds = count_relative_attention_multiply_adds,
          .test_options = {{"memory", int64_t{0}}, {"compressed_memory", int64_t{0}}},
          // Benchmark charts measure sequences without earlier segments, for which a memory would be empty.
          // The variant therefore has no memory.
          .variants = {{kCompressive, {{"memory", int64_t{0}}, {"compressed_memory", int64_t{0}}}}}};
}

}  // namespace tapeformer
