#include "models/attention/sparse_pattern.h"

namespace tapeformer {
namespace {

// Return the key patterns of the two attention layers of "Axial Attention in Multidimensional Transformers"
// (Ho et al. 2019). With the row pattern, a query attends to the keys in its row of the image. With the
// column pattern, a query attends to the keys in its column. The tokens of an image are in raster order, with
// `width` tokens per row.
KeyPattern make_row_pattern(int64_t width) {
  return {.window = {.block_size = width, .before = 0, .after = 0}};
}
KeyPattern make_column_pattern(int64_t width) {
  return {.window = KeyPattern::make_empty_window(),
          .dilated = {.step = width, .before = KeyWindow::kUnlimited, .after = KeyWindow::kUnlimited}};
}

int64_t get_grid_width(const OptionValues& options) {
  return options.get<int64_t>("image_width");
}

AttentionKind make_axial_kind(const char* name, const char* help, KeyPattern (*pattern)(int64_t width)) {
  return {.name = name,
          .help = help,
          .capabilities = make_sparse_attention_capabilities(),
          .options = {{.name = "image_width",
                       .default_value = int64_t{32},
                       .help = "tokens in a row of the images; RGB images have three tokens per pixel",
                       .min = 1,
                       .max = 1 << 24}},
          .make =
              [pattern](const OptionValues& options, const AttentionSetup& setup) {
                return make_softmax_attention(pattern(get_grid_width(options)), setup.dropout);
              },
          .check_length = [](const OptionValues& options,
                             int64_t length) { check_option_at_most_length(options, "image_width", length); },
          .test_options = {{"image_width", int64_t{4}}}};
}

}  // namespace

AttentionKind make_axial_row_attention_kind() {
  AttentionKind kind = make_axial_kind(
      "axial-row", "Axial Transformer: softmax attention within the rows of images", make_row_pattern);
  kind.capabilities.has_constant_size_state = true;
  kind.count_multiply_adds = [](const OptionValues& options, const AttentionSize& size) {
    return count_sparse_attention_multiply_adds(static_cast<double>(get_grid_width(options) + 1) / 2, size);
  };
  return kind;
}

AttentionKind make_axial_column_attention_kind() {
  AttentionKind kind =
      make_axial_kind("axial-column", "Axial Transformer: softmax attention within the columns of images",
                      make_column_pattern);
  kind.count_multiply_adds = [](const OptionValues& options, const AttentionSize& size) {
    const auto length = static_cast<double>(size.length);
    return count_sparse_attention_multiply_adds(length / static_cast<double>(2 * get_grid_width(options)),
                                                size);
  };
  return kind;
}

}  // namespace tapeformer
