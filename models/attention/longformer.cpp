#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

// Returns the largest distance between a query and a key of its window.
int64_t compute_window_reach(const OptionValues& options) {
  return options.get<int64_t>("window") / 2 * options.get<int64_t>("dilation");
}

// Returns the pattern of "Longformer: The Long-Document Transformer" (Beltagy et al. 2020, section 3.1): a
// dilated window and global tokens.
KeyPattern make_longformer_pattern(const OptionValues& options) {
  const auto window = options.get<int64_t>("window"), dilation = options.get<int64_t>("dilation");
  if (window % 2 != 0)
    throw OptionError("window", concat_text("expected an even number, half of the tokens on each side of a "
                                            "token, got ",
                                            window));
  KeyPattern pattern;
  pattern.window = {.block_size = 1, .before = window / 2, .after = window / 2};
  if (dilation > 1) {
    pattern.window = KeyPattern::make_empty_window();
    pattern.dilated = {
        .step = dilation, .before = compute_window_reach(options), .after = compute_window_reach(options)};
  }
  pattern.global.prefix_end = options.get<int64_t>("global_tokens");
  return pattern;
}

void check_longformer_length(const OptionValues& options, int64_t length) {
  check_option_at_most_length(options, "global_tokens", length);
  check_option_at_most_length(options, "dilation", length);
  if (compute_window_reach(options) > length)
    throw OptionError("window",
                      concat_text("expected at most ", length / options.get<int64_t>("dilation") * 2,
                                  ", so that window / 2 * dilation is at most the length of the "
                                  "sequences, ",
                                  length, ", got ", options.get<int64_t>("window")));
}

}  // namespace

AttentionKind make_longformer_attention_kind() {
  return {
      .name = "longformer",
      .help = "Longformer: softmax attention to a window, which may be dilated, and to global tokens",
      .capabilities = make_sparse_attention_capabilities(),
      .options = {{.name = "window",
                   .default_value = int64_t{512},
                   .help = "tokens around a token, half on each side; an even number",
                   .min = 2,
                   .max = 1 << 24},
                  {.name = "dilation",
                   .default_value = int64_t{1},
                   .help = "distance between neighbouring tokens of a window",
                   .min = 1,
                   .max = 1 << 16},
                  {.name = "global_tokens",
                   .default_value = int64_t{1},
                   .help =
                       "first tokens of a sequence, which attend to all tokens and which all tokens attend "
                       "to",
                   .min = 0,
                   .max = 1 << 24}},
      .make =
          [](const OptionValues& options, const AttentionSetup& setup) {
            return make_softmax_attention(make_longformer_pattern(options), setup.dropout);
          },
      .check_length = check_longformer_length,
      .count_multiply_adds =
          [](const OptionValues& options, const AttentionSize& size) {
            return count_sparse_attention_multiply_adds(
                static_cast<double>(1 + options.get<int64_t>("window") / 2 +
                                    options.get<int64_t>("global_tokens")),
                size);
          },
      .test_options = {{"window", int64_t{4}}}};
}

}  // namespace tapeformer
