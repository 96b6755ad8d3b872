#include <algorithm>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/softmax_attention.h"

namespace tapeformer {
namespace {

constexpr const char* kSlidingForm = "sliding";
constexpr const char* kBlockForm = "blocks";

// Returns the window of the options. Without causality, a sliding window extends to both sides, and blocks
// extend backwards only.
KeyWindow key_window(const OptionValues& options) {
  const auto window = options.get<int64_t>("window");
  if (options.get<std::string>("form") == kSlidingForm)
    return {.block = 1, .before = window - 1, .after = window - 1};
  return {.block = window, .before = options.get<int64_t>("blocks_back") * window, .after = 0};
}

void check_window_length(const OptionValues& options, int64_t length) {
  if (const auto window = options.get<int64_t>("window"); window > length)
    throw OptionError(
        "window", concat_text("expected at most the length of the sequences, ", length, ", got ", window));
}

// Counts the keys of a query far from the start of the sequence: on average, half of its own block and all
// keys before it. A sequence that fits into one window costs as much as softmax attention.
double window_multiply_adds(const OptionValues& options, const AttentionSize& size) {
  const KeyWindow window = key_window(options);
  const auto length = static_cast<double>(size.length);
  const double keys = static_cast<double>(window.before) + static_cast<double>(window.block + 1) / 2;
  return 2 * static_cast<double>(size.dim) * std::min(keys, length / 2) * length;
}

}  // namespace

AttentionKind local_attention_kind() {
  return {
      .name = "local",
      .help = "softmax attention to the tokens in a window: time is linear in the length",
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .cross_lengths = unsupported("a window is defined by the positions of one sequence"),
                       .recurrent = true,
                       .weight_dropout = true,
                       .bfloat16 = true,
                       .constant_state = true},
      .options = {{.name = "form",
                   .default_value = std::string(kSlidingForm),
                   .help = "sliding: a token and the window - 1 tokens before it; blocks: the tokens of its "
                           "block of `window` tokens and of the blocks before it (trax)",
                   .choices = {kSlidingForm, kBlockForm}},
                  {.name = "window",
                   .default_value = int64_t{256},
                   .help = "tokens of a sliding window, or of a block",
                   .min = 1,
                   .max = 1 << 24},
                  {.name = "blocks_back",
                   .default_value = int64_t{1},
                   .help = "number of earlier blocks that a token attends to, for form = blocks",
                   .min = 0,
                   .max = 1 << 10}},
      .make =
          [](const OptionValues& options, const AttentionSetup& setup) {
            return make_softmax_attention(key_window(options), setup.dropout);
          },
      .check_length = check_window_length,
      .multiply_adds = window_multiply_adds,
      .short_options = {{"window", int64_t{4}}},
      .variants = {{"local-256", {{"window", int64_t{256}}}}}};
}

}  // namespace tapeformer
