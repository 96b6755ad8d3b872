// The attention kinds that compute softmax attention to the keys of a pattern, as a table. A row contains the
// options of a kind and a function that makes the pattern from the options. The cost of a kind is counted
// from its pattern.
#include <array>
#include <limits>

#include "models/attention/kinds/big_bird.h"
#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

int64_t get_integer(const OptionValues& options, const char* name) {
  return options.get<int64_t>(name);
}
bool is_chosen(const OptionValues& options, const char* name, const char* choice) {
  return options.get<std::string>(name) == choice;
}

constexpr const char* kSliding = "sliding";
constexpr const char* kBlocks = "blocks";

// Local attention. A sliding window also contains tokens after the query, for attention without a causal
// mask. A window of blocks contains no blocks after the block of the query.
KeyPattern make_local_pattern(const OptionValues& options) {
  const int64_t window = get_integer(options, "window");
  if (is_chosen(options, "form", kSliding))
    return {.window = {.block_size = 1, .before = window - 1, .after = window - 1}};
  return {
      .window = {.block_size = window, .before = get_integer(options, "blocks_back") * window, .after = 0}};
}

constexpr const char* kStrided = "strided";
constexpr const char* kFixed = "fixed";
constexpr const char* kMerged = "merged";
constexpr const char* kSplit = "split";

// "Generating Long Sequences with Sparse Transformers" (Child et al. 2019, section 4.3). A query attends to
// near keys and to regularly spaced far keys. The near keys are in `pattern.window`. The far keys are in
// `pattern.dilated` in the strided form, and in `pattern.periodic` in the fixed form. Without a causal mask,
// the strided form contains keys on both sides of the query.
KeyPattern make_sparse_pattern(const OptionValues& options) {
  const int64_t stride = get_integer(options, "stride"), summary = get_integer(options, "summary");
  KeyPattern pattern;
  pattern.alternate_heads = is_chosen(options, "heads", kSplit);
  if (is_chosen(options, "form", kStrided)) {
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

void check_sparse_heads(const OptionValues& options, int64_t heads) {
  if (heads == 1 && is_chosen(options, "heads", kSplit))
    throw OptionError("heads", "split needs at least two heads, got one: use merged");
}

// Returns the largest distance between a query and a key of its window in Longformer.
int64_t compute_window_reach(const OptionValues& options) {
  return get_integer(options, "window") / 2 * get_integer(options, "dilation");
}

// "Longformer: The Long-Document Transformer" (Beltagy et al. 2020, section 3.1): a dilated window and global
// tokens.
KeyPattern make_longformer_pattern(const OptionValues& options) {
  const int64_t window = get_integer(options, "window"), dilation = get_integer(options, "dilation");
  if (window % 2 != 0)
    throw OptionError("window", concat_text("expected an even number, half of the tokens on each side of a "
                                            "token, got ",
                                            window));
  const int64_t reach = compute_window_reach(options);
  KeyPattern pattern;
  pattern.window = {.block_size = 1, .before = reach, .after = reach};
  if (dilation > 1) {
    pattern.window = KeyPattern::make_empty_window();
    pattern.dilated = {.step = dilation, .before = reach, .after = reach};
  }
  pattern.global.prefix_end = get_integer(options, "global_tokens");
  return pattern;
}

void check_longformer_length(const OptionValues& options, int64_t length) {
  check_option_at_most_length(options, "global_tokens", length);
  check_option_at_most_length(options, "dilation", length);
  if (compute_window_reach(options) > length)
    throw OptionError("window",
                      concat_text("expected at most ", length / get_integer(options, "dilation") * 2,
                                  ", so that window / 2 * dilation is at most the length of the "
                                  "sequences, ",
                                  length, ", got ", get_integer(options, "window")));
}

constexpr const char* kOneDimension = "1d";
constexpr const char* kTwoDimensions = "2d";

// The local patterns of "Image Transformer" (Parmar et al. 2018, section 3.3).
KeyPattern make_image_pattern(const OptionValues& options) {
  const auto make_window = [&](const char* block, const char* memory, bool both_sides) {
    const int64_t reach = get_integer(options, memory);
    return KeyWindow{
        .block_size = get_integer(options, block), .before = reach, .after = both_sides ? reach : 0};
  };
  if (is_chosen(options, "form", kOneDimension)) return {.window = make_window("block", "memory", false)};
  const int64_t width = get_integer(options, "image_width");
  if (width == 0)
    throw OptionError("image_width",
                      "expected the number of tokens in a row of the images for form = 2d, got 0");
  for (const char* name : {"block_columns", "memory_columns"})
    if (get_integer(options, name) > width)
      throw OptionError(
          name, concat_text("expected at most image_width, ", width, ", got ", get_integer(options, name)));
  return {.window = KeyPattern::make_empty_window(),
          .grid = {.width = width,
                   .row_window = make_window("block_rows", "memory_rows", true),
                   .column_window = make_window("block_columns", "memory_columns", true)}};
}

void check_image_length(const OptionValues& options, int64_t length) {
  const bool one_dimension = is_chosen(options, "form", kOneDimension);
  for (const char* name :
       one_dimension ? std::array{"block", "memory"} : std::array{"image_width", "memory_rows"})
    check_option_at_most_length(options, name, length);
}

// The two layers of "Axial Attention in Multidimensional Transformers" (Ho et al. 2019). A query attends to
// the keys in its row, or in its column, of an image in raster order.
KeyPattern make_row_pattern(const OptionValues& options) {
  return {.window = {.block_size = get_integer(options, "image_width"), .before = 0, .after = 0}};
}
KeyPattern make_column_pattern(const OptionValues& options) {
  return {.window = KeyPattern::make_empty_window(),
          .dilated = {.step = get_integer(options, "image_width"),
                      .before = KeyWindow::kUnlimited,
                      .after = KeyWindow::kUnlimited}};
}

// Converts a function that returns a KeyPattern to the type of PatternKind::make_pattern.
template <KeyPattern (*make_pattern)(const OptionValues&)>
PatternFunction make_fixed(const OptionValues& options) {
  return [pattern = make_pattern(options)](const PatternContext&) { return SparsePattern{pattern}; };
}

// A row of the table. The members with the names of members of AttentionKind have the same meaning.
struct PatternKind {
  std::string name, help;
  std::vector<OptionSpec> options;
  PatternFunction (*make_pattern)(const OptionValues& options);
  void (*check_length)(const OptionValues& options, int64_t length) = nullptr;
  void (*check_heads)(const OptionValues& options, int64_t heads) = nullptr;
  bool has_constant_size_state = false;
  Capability length_masks = true;
  std::vector<std::pair<std::string, OptionValue>> test_options = {};
  std::vector<AttentionVariant> variants = {};
};

AttentionKind make_kind(const PatternKind& row) {
  AttentionCapabilities capabilities = make_sparse_attention_capabilities();
  capabilities.length_masks = row.length_masks;
  capabilities.has_constant_size_state = row.has_constant_size_state;
  return {.name = row.name,
          .help = row.help,
          .capabilities = capabilities,
          .options = row.options,
          .make =
              [row](const OptionValues& options, const AttentionSetup& setup) {
                if (row.check_heads) row.check_heads(options, setup.heads);
                return make_softmax_attention(row.make_pattern(options), setup.dropout);
              },
          .check_length = row.check_length,
          .count_multiply_adds =
              [row](const OptionValues& options, const AttentionSize& size) {
                return count_pattern_multiply_adds(row.make_pattern(options), size);
              },
          .test_options = row.test_options,
          .variants = row.variants};
}

constexpr double kMaxLength = 1 << 24;

OptionSpec integer(const char* name, int64_t default_value, const char* help, double min = 1,
                   double max = kMaxLength, OptionCondition used_if = {}) {
  return {.name = name,
          .default_value = default_value,
          .help = help,
          .min = min,
          .max = max,
          .used_if = std::move(used_if)};
}
OptionSpec choice(const char* name, const char* default_value, const char* help,
                  std::vector<std::string> choices) {
  return {
      .name = name, .default_value = std::string(default_value), .help = help, .choices = std::move(choices)};
}

PatternKind make_local_row() {
  return {
      .name = "local",
      .help = "softmax attention to the tokens in a window: time is linear in the length",
      .options = {choice("form", kSliding,
                         "sliding: a token and the window - 1 tokens before it; blocks: the tokens of its "
                         "block of `window` tokens and of the blocks before it (trax)",
                         {kSliding, kBlocks}),
                  integer("window", 256,
                          "tokens of a sliding window, or of a block; may exceed the length of sequences"),
                  integer("blocks_back", 1,
                          "number of earlier blocks that a token attends to, for form = blocks", 0, 1 << 10,
                          {"form", {kBlocks}})},
      .make_pattern = make_fixed<make_local_pattern>,
      .has_constant_size_state = true,
      .test_options = {{"window", int64_t{4}}},
      .variants = {{"local-256", {{"window", int64_t{256}}}}}};
}

PatternKind make_sparse_row() {
  return {
      .name = "sparse",
      .help = "Sparse Transformer: softmax attention to near tokens and to regularly spaced tokens",
      .options = {choice("form", kFixed,
                         "strided: the last `stride` tokens, and every `stride`-th earlier token; fixed: "
                         "the block of `stride` tokens, and the last `summary` tokens of every block",
                         {kStrided, kFixed}),
                  integer("stride", 128, "tokens of a block, and distance between far tokens"),
                  integer("summary", 32,
                          "tokens at the end of a block that all later tokens attend to, for form = fixed", 1,
                          kMaxLength, {"form", {kFixed}}),
                  choice("heads", kMerged,
                         "merged: every head attends to the union of both sets; split: heads with even "
                         "numbers attend to near tokens, and heads with odd numbers to far tokens",
                         {kMerged, kSplit})},
      .make_pattern = make_fixed<make_sparse_pattern>,
      .check_length = [](const OptionValues& options,
                         int64_t length) { check_option_at_most_length(options, "stride", length); },
      .check_heads = check_sparse_heads,
      .test_options = {{"stride", int64_t{4}}, {"summary", int64_t{1}}}};
}

PatternKind make_longformer_row() {
  return {
      .name = "longformer",
      .help = "Longformer: softmax attention to a window, which may be dilated, and to global tokens",
      .options = {integer("window", 512, "tokens around a token, half on each side; an even number", 2),
                  integer("dilation", 1, "distance between neighbouring tokens of a window", 1, 1 << 16),
                  integer(
                      "global_tokens", 1,
                      "first tokens of a sequence, which attend to all tokens and which all tokens attend "
                      "to",
                      0)},
      .make_pattern = make_fixed<make_longformer_pattern>,
      .check_length = check_longformer_length,
      .test_options = {{"window", int64_t{4}}}};
}

PatternKind make_big_bird_row() {
  constexpr double kMax = 1 << 20;
  return {
      .name = "big-bird",
      .help = "Big Bird: softmax attention to a window of blocks, global blocks and random blocks",
      .options = {integer("block", 64, "number of tokens in a block", 1, kMax),
                  integer("window_blocks", 3, "number of blocks in the window, odd", 1, kMax),
                  integer("global_blocks", 1, "number of global blocks at each end of a sequence", 0, kMax),
                  integer("random_blocks", 3, "number of random key blocks for each query block", 0, kMax),
                  integer("block_seed", 0, "seed of the random blocks in training, evaluation and decoding",
                          0, std::numeric_limits<double>::infinity(), {"random_blocks"})},
      .make_pattern = make_big_bird_pattern,
      .check_length = check_big_bird_length,
      .length_masks =
          make_unsupported("the random blocks and the last global blocks depend on the length with padding"),
      .test_options = {{"block", int64_t{2}}, {"window_blocks", int64_t{1}}, {"random_blocks", int64_t{1}}}};
}

PatternKind make_image_row() {
  const auto size = [](const char* form, const char* name, int64_t default_value, const std::string& help,
                       double min) {
    return integer(name, default_value, concat_text(help, ", for form = ", form).c_str(), min, 1 << 20,
                   {"form", {form}});
  };
  return {
      .name = "image",
      .help = "Image Transformer: softmax attention of blocks of an image to themselves and to nearby tokens",
      .options = {choice("form", kOneDimension,
                         "1d: blocks of consecutive tokens; 2d: rectangles of the image",
                         {kOneDimension, kTwoDimensions}),
                  size(kOneDimension, "block", 256, "tokens of a block", 1),
                  size(kOneDimension, "memory", 128, "tokens before a block that it attends to", 0),
                  size(kTwoDimensions, "image_width", 0, "tokens in a row of the images", 0),
                  size(kTwoDimensions, "block_rows", 8, "rows of a block", 1),
                  size(kTwoDimensions, "block_columns", 16, "tokens in a row of a block", 1),
                  size(kTwoDimensions, "memory_rows", 8, "rows above and below a block", 0),
                  size(kTwoDimensions, "memory_columns", 16, "tokens to the left and right of a block", 0)},
      .make_pattern = make_fixed<make_image_pattern>,
      .check_length = check_image_length,
      .test_options = {{"block", int64_t{4}}, {"memory", int64_t{2}}},
      .variants = {{"image-1d", {}},
                   {"image-2d", {{"form", std::string(kTwoDimensions)}, {"image_width", int64_t{64}}}}}};
}

PatternKind make_axial_row(const char* name, const char* help,
                           PatternFunction (*make_pattern)(const OptionValues&), bool constant_size_state) {
  return {.name = name,
          .help = help,
          .options = {integer("image_width", 32,
                              "tokens in a row of the images; RGB images have three tokens per pixel")},
          .make_pattern = make_pattern,
          .check_length = [](const OptionValues& options,
                             int64_t length) { check_option_at_most_length(options, "image_width", length); },
          .has_constant_size_state = constant_size_state,
          .test_options = {{"image_width", int64_t{4}}}};
}

}  // namespace

std::vector<AttentionKind> make_pattern_attention_kinds() {
  return {
      make_kind(make_local_row()),
      make_kind(make_sparse_row()),
      make_kind(make_longformer_row()),
      make_kind(make_big_bird_row()),
      make_kind(make_image_row()),
      make_kind(make_axial_row("axial-row", "Axial Transformer: softmax attention within the rows of images",
                               make_fixed<make_row_pattern>, true)),
      make_kind(make_axial_row("axial-column",
                               "Axial Transformer: softmax attention within the columns of images",
                               make_fixed<make_column_pattern>, false))};
}

}  // namespace tapeformer
