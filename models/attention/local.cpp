#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

constexpr const char* kSlidingForm = "sliding";
constexpr const char* kBlockForm = "blocks";

// Returns the window of keys of a query, for attention without a causal mask. A sliding window also contains
// tokens after the query. A window of blocks contains no blocks after the block of the query.
KeyWindow make_key_window(const OptionValues& options) {
  const auto window = options.get<int64_t>("window");
  if (options.get<std::string>("form") == kSlidingForm)
    return {.block_size = 1, .before = window - 1, .after = window - 1};
  return {.block_size = window, .before = options.get<int64_t>("blocks_back") * window, .after = 0};
}

std::unique_ptr<Attention> make_local_attention(const OptionValues& options, const AttentionSetup& setup) {
  return make_softmax_attention(make_key_window(options), setup.dropout);
}

// Implements AttentionKind::count_multiply_adds. A query attends to `before` keys before its block and, on
// average, to (block_size + 1) / 2 keys of its block.
double count_window_multiply_adds(const OptionValues& options, const AttentionSize& size) {
  const KeyWindow window = make_key_window(options);
  return count_sparse_attention_multiply_adds(
      static_cast<double>(window.before) + static_cast<double>(window.block_size + 1) / 2, size);
}

}  // namespace

AttentionKind make_local_attention_kind() {
  AttentionCapabilities capabilities = make_sparse_attention_capabilities();
  capabilities.has_constant_size_state = true;
  return {
      .name = "local",
      .help = "softmax attention to the tokens in a window: time is linear in the length",
      .capabilities = capabilities,
      .options = {{.name = "form",
                   .default_value = std::string(kSlidingForm),
                   .help = "sliding: a token and the window - 1 tokens before it; blocks: the tokens of its "
                           "block of `window` tokens and of the blocks before it (trax)",
                   .choices = {kSlidingForm, kBlockForm}},
                  {.name = "window",
                   .default_value = int64_t{256},
                   .help = "tokens of a sliding window, or of a block; may exceed the length of sequences",
                   .min = 1,
                   .max = 1 << 24},
                  {.name = "blocks_back",
                   .default_value = int64_t{1},
                   .help = "number of earlier blocks that a token attends to, for form = blocks",
                   .min = 0,
                   .max = 1 << 10,
                   .used_if = {"form", {kBlockForm}}}},
      .make = make_local_attention,
      .count_multiply_adds = count_window_multiply_adds,
      .test_options = {{"window", int64_t{4}}},
      .variants = {{"local-256", {{"window", int64_t{256}}}}}};
}

}  // namespace tapeformer
