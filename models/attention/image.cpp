#include <array>

#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

constexpr const char* kOneDimension = "1d";
constexpr const char* kTwoDimensions = "2d";

KeyWindow make_block_window(int64_t block, int64_t memory, bool both_sides) {
  return {.block_size = block, .before = memory, .after = both_sides ? memory : 0};
}

// Returns the local pattern of "Image Transformer" (Parmar et al. 2018, section 3.3).
KeyPattern make_image_pattern(const OptionValues& options) {
  const auto value = [&](const char* name) { return options.get<int64_t>(name); };
  if (options.get<std::string>("form") == kOneDimension)
    return {.window = make_block_window(value("block"), value("memory"), false)};
  if (value("image_width") == 0)
    throw OptionError("image_width",
                      "expected the number of tokens in a row of the images for form = 2d, got 0");
  for (const char* name : {"block_columns", "memory_columns"})
    if (value(name) > value("image_width"))
      throw OptionError(
          name, concat_text("expected at most image_width, ", value("image_width"), ", got ", value(name)));
  return {
      .window = KeyPattern::make_empty_window(),
      .grid = {.width = value("image_width"),
               .row_window = make_block_window(value("block_rows"), value("memory_rows"), true),
               .column_window = make_block_window(value("block_columns"), value("memory_columns"), true)}};
}

void check_image_length(const OptionValues& options, int64_t length) {
  const bool one_dimension = options.get<std::string>("form") == kOneDimension;
  for (const char* name :
       one_dimension ? std::array{"block", "memory"} : std::array{"image_width", "memory_rows"})
    check_option_at_most_length(options, name, length);
}

// Implements AttentionKind::count_multiply_adds. The count ignores that queries near the borders of the image
// have fewer keys. With a causal mask, a query attends on average to half of the tokens in its block.
double count_image_multiply_adds(const OptionValues& options, const AttentionSize& size) {
  const auto value = [&](const char* name) { return static_cast<double>(options.get<int64_t>(name)); };
  if (options.get<std::string>("form") == kOneDimension)
    return count_sparse_attention_multiply_adds(value("memory") + (value("block") + 1) / 2, size);
  return count_sparse_attention_multiply_adds((value("memory_rows") + value("block_rows") / 2) *
                                                  (value("block_columns") + 2 * value("memory_columns")),
                                              size);
}

OptionSpec make_size_option(const char* form, const char* name, int64_t default_value, const char* help,
                            double min) {
  return {.name = name,
          .default_value = default_value,
          .help = concat_text(help, ", for form = ", form),
          .min = min,
          .max = 1 << 20,
          .used_if = {"form", {form}}};
}

}  // namespace

AttentionKind make_image_attention_kind() {
  return {
      .name = "image",
      .help = "Image Transformer: softmax attention of blocks of an image to themselves and to nearby tokens",
      .capabilities = make_sparse_attention_capabilities(),
      .options = {{.name = "form",
                   .default_value = std::string(kOneDimension),
                   .help = "1d: blocks of consecutive tokens; 2d: rectangles of the image",
                   .choices = {kOneDimension, kTwoDimensions}},
                  make_size_option(kOneDimension, "block", 256, "tokens of a block", 1),
                  make_size_option(kOneDimension, "memory", 128, "tokens before a block that it attends to",
                                   0),
                  make_size_option(kTwoDimensions, "image_width", 0, "tokens in a row of the images", 0),
                  make_size_option(kTwoDimensions, "block_rows", 8, "rows of a block", 1),
                  make_size_option(kTwoDimensions, "block_columns", 16, "tokens in a row of a block", 1),
                  make_size_option(kTwoDimensions, "memory_rows", 8, "rows above and below a block", 0),
                  make_size_option(kTwoDimensions, "memory_columns", 16,
                                   "tokens to the left and right of a block", 0)},
      .make =
          [](const OptionValues& options, const AttentionSetup& setup) {
            return make_softmax_attention(make_image_pattern(options), setup.dropout);
          },
      .check_length = check_image_length,
      .count_multiply_adds = count_image_multiply_adds,
      .test_options = {{"block", int64_t{4}}, {"memory", int64_t{2}}},
      .variants = {{"image-1d", {}},
                   {"image-2d", {{"form", std::string(kTwoDimensions)}, {"image_width", int64_t{64}}}}}};
}

}  // namespace tapeformer
