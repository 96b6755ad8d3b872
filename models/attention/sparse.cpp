#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

constexpr const char* kStrided = "strided";
constexpr const char* kFixed = "fixed";
constexpr const char* kMerged = "merged";
constexpr const char* kSplit = "split";

// Returns the pattern of "Generating Long Sequences with Sparse Transformers" (Child et al. 2019, section
// 4.3). A query attends to near keys and to regularly spaced far keys. The near keys are in `pattern.window`.
// The far keys are in `pattern.dilated` in the strided form, and in `pattern.periodic` in the fixed form.
// Without a causal mask, the strided form contains keys on both sides of the query.
KeyPattern make_sparse_pattern(const OptionValues& options) {
  const auto stride = options.get<int64_t>("stride"), summary = options.get<int64_t>("summary");
  KeyPattern pattern;
  pattern.alternate_heads = options.get<std::string>("heads") == kSplit;
  if (options.get<std::string>("form") == kStrided) {
    pattern.window = {.block_size = 1, .before = stride - 1, .after = stride - 1};
    pattern.dilated = {.step = stride, .before = KeyWindow::kUnlimited, .after = KeyWindow::kUnlimited};
    return pattern;
  }
  if (summary > stride)
    throw OptionError("summary", concat_text("expected at most stride, ", stride, ", got ", summary));
  pattern.window = {.block_size = stride, .before = 0, .after = 0};
  pattern.periodic = {.period = stride, .count = summary};
  return pattern;
}

// Implements AttentionKind::count_multiply_adds. `near` is the number of keys in the window of a query, and
// `far` is the number of its regularly spaced keys. With heads = split, half of the heads use the near keys
// and half use the far keys, so the mean number of keys is (near + far) / 2.
double count_two_sets_multiply_adds(const OptionValues& options, const AttentionSize& size) {
  const auto stride = static_cast<double>(options.get<int64_t>("stride"));
  const auto summary = static_cast<double>(options.get<int64_t>("summary"));
  const bool strided = options.get<std::string>("form") == kStrided;
  const double near = strided ? stride : (stride + 1) / 2;
  const double far = static_cast<double>(size.length) / 2 * (strided ? 1 : summary) / stride;
  return count_sparse_attention_multiply_adds(
      options.get<std::string>("heads") == kSplit ? (near + far) / 2 : near + far, size);
}

}  // namespace

AttentionKind make_sparse_attention_kind() {
  return {
      .name = "sparse",
      .help = "Sparse Transformer: softmax attention to near tokens and to regularly spaced tokens",
      .capabilities = make_sparse_attention_capabilities(),
      .options = {{.name = "form",
                   .default_value = std::string(kFixed),
                   .help =
                       "strided: the last `stride` tokens, and every `stride`-th earlier token; fixed: the "
                       "block of `stride` tokens, and the last `summary` tokens of every block",
                   .choices = {kStrided, kFixed}},
                  {.name = "stride",
                   .default_value = int64_t{128},
                   .help = "tokens of a block, and distance between far tokens",
                   .min = 1,
                   .max = 1 << 24},
                  {.name = "summary",
                   .default_value = int64_t{32},
                   .help = "tokens at the end of a block that all later tokens attend to, for form = fixed",
                   .min = 1,
                   .max = 1 << 24,
                   .used_if = {"form", {kFixed}}},
                  {.name = "heads",
                   .default_value = std::string(kMerged),
                   .help = "merged: every head attends to the union of both sets; split: heads with even "
                           "numbers attend to near tokens, and heads with odd numbers to far tokens",
                   .choices = {kMerged, kSplit}}},
      .make =
          [](const OptionValues& options, const AttentionSetup& setup) {
            if (setup.heads == 1 && options.get<std::string>("heads") == kSplit)
              throw OptionError("heads", "split needs at least two heads, got one: use merged");
            return make_softmax_attention(make_sparse_pattern(options), setup.dropout);
          },
      .check_length = [](const OptionValues& options,
                         int64_t length) { check_option_at_most_length(options, "stride", length); },
      .count_multiply_adds = count_two_sets_multiply_adds,
      .test_options = {{"stride", int64_t{4}}, {"summary", int64_t{1}}}};
}

}  // namespace tapeformer
