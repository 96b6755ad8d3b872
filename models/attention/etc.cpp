#include <algorithm>
#include <cmath>
#include <limits>

#include "models/attention/attention.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/relative_attention.h"
#include "ops/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kEtc = "etc";
constexpr double kEtcMasked = -std::numeric_limits<double>::infinity();

struct EtcOptions {
  int64_t global_tokens, radius, max_distance;
  bool segment_mask;
};

// Global-local attention (Ainslie et al. 2020, "ETC: Encoding long and structured inputs in transformers").
// The first tokens of a sequence are global. The other tokens are called long tokens, and each global token
// has a segment, which is a span of long tokens. A long token attends to the global tokens and to the long
// tokens at a distance of at most `radius`. If `segment_mask` is false, a global token attends to all tokens.
// If `segment_mask` is true, a global token attends to the global tokens and to the long tokens in its
// segment.
//
// The score of query i and key j is q_i · (k_j + a(i, j)) / √dim, where a(i, j) is a learned vector, the
// label of the pair. For two global or two long tokens, the label depends on their distance. For a global
// token and a long token, the label depends on which of them is the query, and on whether the long token is
// in the segment of the global token.
class EtcKind final : public Attention {
 public:
  EtcKind(const EtcOptions& options, const AttentionSetup& setup)
      : options_(options), segment_((setup.max_length - 1) / options.global_tokens), dropout_(setup.dropout) {
    const Initializer initializer = make_normal_initializer(0.02);  // as in the authors' code
    const Shape distances{2 * options.max_distance + 1, setup.heads, setup.dim};
    add_parameter("long_labels", long_labels_, distances, initializer);
    add_parameter("global_labels", global_labels_, distances, initializer);
    add_parameter("segment_labels", segment_labels_, {4, setup.heads, setup.dim}, initializer);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(!mask.causal, kEtc, "global tokens attend to all tokens, so there is no causal form");
    check(q.size(1) == k.size(1), kEtc, "queries ", q.shape(), " and keys ", k.shape(),
          " must have equal lengths");
    const auto heads_first = [](const Tensor& x) { return permute(x, {0, 2, 1, 3}); };
    const int64_t length = q.size(1), globals = std::min(options_.global_tokens, length);
    const Tensor queries = heads_first(mul(q, 1 / std::sqrt(static_cast<double>(q.size(3)))));
    const Inputs x{queries,
                   heads_first(k),
                   heads_first(v),
                   mask.key_lengths.defined() ? make_length_score_mask(mask.key_lengths, length, q)
                                              : Tensor::zeros({1, length}, q.dtype(), q.device()),
                   segments(globals, length - globals).to(q.dtype()).to(q.device()),
                   globals};
    const auto dropped = [&](const Tensor& weights, const char* part) {
      const DropoutMask drop = context.make_dropout_mask(dropout_, name + part);
      return dropout(weights, drop.at_offset(context.first_example * weights.numel() / weights.size(0)));
    };
    const Tensor global_weights = dropped(softmax(global_scores(x)), ".global.weights");
    const Tensor global_out = matmul(global_weights, x.values);
    if (length == globals) return contiguous(heads_first(global_out));
    const Tensor long_weights = dropped(softmax(long_scores(x)), ".long.weights");
    return contiguous(heads_first(concat({global_out, long_output(x, long_weights)}, 2)));
  }

 private:
  // Inputs of the score functions. The first `globals` tokens are global, and the others are long tokens. The
  // long tokens are divided into one segment for each global token.
  // - queries, keys, values: (batch, heads, length, dim). `queries` is divided by √dim.
  // - masks: (batch or 1, length), -inf for masked keys and 0 for other keys.
  // - segments: (globals, long_length()). Element (i, j) is 1 if long token j is in segment i, else 0.
  struct Inputs {
    Tensor queries, keys, values, masks, segments;
    int64_t globals;

    Tensor global_part(const Tensor& x) const { return slice(x, 2, 0, globals); }
    Tensor long_part(const Tensor& x) const { return slice(x, 2, globals, x.size(2)); }
    int64_t long_length() const { return keys.size(2) - globals; }
  };

  // Returns the labels of the distances from -reach to reach, (1, heads, 2 * reach + 1, dim). `labels` is
  // long_labels_ or global_labels_. Distances are clipped to the range from -max_distance to max_distance.
  Tensor labels_of_distances(const Tensor& labels, int64_t reach) const {
    const Tensor rows = Tensor::empty({2 * reach + 1}, DType::int64);
    for (int64_t i = 0; i < rows.numel(); ++i)
      rows.data<int64_t>()[i] =
          options_.max_distance + std::clamp(i - reach, -options_.max_distance, options_.max_distance);
    const int64_t heads = labels.size(1), dim = labels.size(2);
    const Tensor found = embedding(reshape(labels, {labels.size(0), heads * dim}), rows);
    return permute(reshape(found, {1, rows.numel(), heads, dim}), {0, 2, 1, 3});
  }

  // Returns Inputs::segments in float64 on the CPU.
  Tensor segments(int64_t globals, int64_t long_length) const {
    const Tensor result = Tensor::zeros({globals, long_length}, DType::float64);
    for (int64_t i = 0; i < long_length; ++i) {
      const int64_t owner = std::min(i / std::max<int64_t>(segment_, 1), globals - 1);
      result.data<double>()[owner * long_length + i] = 1;
    }
    return result;
  }

  // Returns the dot products of queries and segment labels, (batch, heads, queries, keys). An element of the
  // matrix `same` (queries, keys) is 1 if the query and the key are in the same segment, and otherwise 0. The
  // labels are rows of segment_labels_: row `first` for pairs in different segments, and row `first` + 1 for
  // pairs in the same segment.
  Tensor segment_scores(const Tensor& queries, const Tensor& same, int64_t first) const {
    const Tensor labels = permute(slice(segment_labels_, 0, first, first + 2), {1, 0, 2});
    const Tensor scores =
        matmul(queries, reshape(labels, {1, labels.size(0), 2, labels.size(2)}), {.transpose_b = true});
    const Tensor different = slice(scores, 3, 0, 1);
    return add(different, mul(sub(slice(scores, 3, 1, 2), different), same));
  }

  // Returns the scores of the global queries and all keys, (batch, heads, globals, length).
  Tensor global_scores(const Inputs& x) const {
    const Tensor queries = x.global_part(x.queries);
    const Tensor labels = labels_of_distances(global_labels_, x.globals - 1);
    const Tensor to_globals = relative_scores(matmul(queries, x.global_part(x.keys), {.transpose_b = true}),
                                              matmul(queries, labels, {.transpose_b = true}));
    Tensor to_long = add(matmul(queries, x.long_part(x.keys), {.transpose_b = true}),
                         segment_scores(queries, x.segments, 0));
    if (options_.segment_mask) to_long = add(to_long, log(x.segments));
    const Tensor scores = concat({to_globals, to_long}, 3);
    return add(scores, reshape(x.masks, {x.masks.size(0), 1, 1, x.masks.size(1)}));
  }

  // Long tokens are divided into blocks of `radius` tokens. All long tokens to which a long token attends are
  // in its block and in the two neighbouring blocks. block() returns the number of tokens in a block, and
  // blocks() returns the number of blocks.
  int64_t block() const { return options_.radius; }
  int64_t blocks(const Inputs& x) const { return (x.long_length() + block() - 1) / block(); }

  // Returns x (batch, heads, length, n) as blocks, (batch, heads, count, block(), n).
  Tensor in_blocks(const Tensor& x) const { return split_into_blocks(x, 2, block()); }

  // For each block of x (batch, heads, length, n), returns the rows of the previous block, of the block
  // itself and of the next block, (batch, heads, count, 3 * block(), n). `count` is the number of blocks.
  // Rows outside x are zeros.
  Tensor windows(const Tensor& x) const {
    const Tensor rows = pad(in_blocks(x), 2, 1, 1);
    const int64_t count = rows.size(2) - 2;
    return concat({slice(rows, 2, 0, count), slice(rows, 2, 1, count + 1), slice(rows, 2, 2, count + 2)}, 3);
  }

  // Returns score masks for the keys that windows() returns, (batch or 1, 1, count, 1, 3 * block()). An
  // element is -inf if the key is masked or outside the sequence, and otherwise 0.
  Tensor window_masks(const Inputs& x, int64_t count) const {
    const int64_t batch = x.masks.size(0), length = x.long_length();
    const Tensor valid = exp(slice(x.masks, 1, x.globals, x.globals + length));
    const Tensor in_windows = windows(reshape(valid, {batch, 1, length, 1}));
    return log(reshape(in_windows, {batch, 1, count, 1, 3 * block()}));
  }

  // Returns a mask (4 * block() - 1,) for the distances from 1 - 2 * block() to 2 * block() - 1. An element
  // of the mask is -inf if the absolute value of the distance is greater than the radius, and otherwise 0.
  Tensor radius_masks(const Tensor& like) const {
    const Tensor row = Tensor::zeros({4 * block() - 1}, DType::float64);
    for (int64_t c = 0; c < row.numel(); ++c)
      if (std::abs(c - (2 * block() - 1)) > options_.radius) row.data<double>()[c] = kEtcMasked;
    return row.to(like.dtype()).to(like.device());
  }

  // Returns the scores of the queries of long tokens, (batch, heads, blocks(x), block(), 3 * block() +
  // globals). The last dimension contains the scores for the 3 * block() keys in the window of the query,
  // followed by the scores for the keys of global tokens.
  Tensor long_scores(const Inputs& x) const {
    const int64_t count = blocks(x), batch = x.keys.size(0), heads = x.keys.size(1);
    const Tensor queries = x.long_part(x.queries), query_blocks = in_blocks(queries);
    const Tensor content = matmul(query_blocks, windows(x.long_part(x.keys)), {.transpose_b = true});
    const Tensor labels = labels_of_distances(long_labels_, 2 * block() - 1);
    const Tensor position =
        add(matmul(reshape(query_blocks, {batch, heads, count * block(), -1}), labels, {.transpose_b = true}),
            radius_masks(x.keys));
    const Tensor local =
        reshape(relative_scores(reshape(content, {batch * heads, count, block(), 3 * block()}),
                                reshape(position, {batch * heads, count, block(), 4 * block() - 1})),
                content.shape());
    const Tensor masks = slice(x.masks, 1, 0, x.globals);
    const Tensor to_globals = add(add(matmul(queries, x.global_part(x.keys), {.transpose_b = true}),
                                      segment_scores(queries, transpose(x.segments, 0, 1), 2)),
                                  reshape(masks, {masks.size(0), 1, 1, x.globals}));
    return concat({add(local, window_masks(x, count)), in_blocks(to_globals)}, 4);
  }

  // Returns the results for the queries of long tokens, (batch, heads, long_length(), dim). Each result is a
  // weighted sum of the values. `weights` has the shape of long_scores().
  Tensor long_output(const Inputs& x, const Tensor& weights) const {
    const int64_t batch = weights.size(0), heads = weights.size(1), count = weights.size(2);
    const Tensor local = matmul(slice(weights, 4, 0, 3 * block()), windows(x.long_part(x.values)));
    const Tensor from_globals = matmul(
        reshape(slice(weights, 4, 3 * block(), weights.size(4)), {batch, heads, count * block(), x.globals}),
        x.global_part(x.values));
    const Tensor rows = add(reshape(local, from_globals.shape()), from_globals);
    return slice(rows, 2, 0, x.long_length());
  }

  EtcOptions options_;
  int64_t segment_;  // number of long tokens in a segment; the last segment also has the remaining tokens
  double dropout_;
  Tensor long_labels_, global_labels_;  // labels of clipped distances, (2 max_distance + 1, heads, dim)
  // Labels of pairs of a global and a long token, (4, heads, dim). Rows 0 and 1 are for global queries, and
  // rows 2 and 3 are for long queries. Rows 0 and 2 are for tokens in different segments, and rows 1 and 3
  // are for tokens in the same segment.
  Tensor segment_labels_;
};

void check_etc_length(const OptionValues& options, int64_t length) {
  check_option_at_most_length(options, "global_tokens", length);
  check_option_at_most_length(options, "radius", length);
}

}  // namespace

AttentionKind make_etc_attention_kind() {
  constexpr const char* kNotCausal = "global tokens attend to all tokens";
  return {
      .name = kEtc,
      .help = "ETC: global tokens, a window of long tokens, and learned labels of relative positions",
      .capabilities = {.causal = make_unsupported(kNotCausal),
                       .length_masks = true,
                       .unequal_lengths = make_unsupported("distances are between positions of one sequence"),
                       .recurrent = make_unsupported(kNotCausal),
                       .weight_dropout = true,
                       .bfloat16 = make_unsupported("its scores are sums of float32 products")},
      .options = {{.name = "global_tokens",
                   .default_value = int64_t{16},
                   .help = "first tokens of a sequence, which are global",
                   .min = 1,
                   .max = 1 << 20},
                  {.name = "radius",
                   .default_value = int64_t{84},
                   .help = "largest distance between long tokens that attend to each other",
                   .min = 1,
                   .max = 1 << 20},
                  {.name = "max_distance",
                   .default_value = int64_t{12},
                   .help =
                       "largest distance with a separate label; larger distances have the label of this one",
                   .min = 0,
                   .max = 1 << 16},
                  {.name = "segment_mask",
                   .default_value = false,
                   .help = "mask the long tokens outside the segment of a global token"}},
      .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
        check(setup.max_length > 0, kEtc, "the segments of the global tokens need a maximum length");
        return std::make_unique<EtcKind>(
            EtcOptions{options.get<int64_t>("global_tokens"), options.get<int64_t>("radius"),
                       options.get<int64_t>("max_distance"), options.get<bool>("segment_mask")},
            setup);
      },
      .check_length = check_etc_length,
      // Counts the scores and the weighted sums of the long and the global queries.
      .count_multiply_adds =
          [](const OptionValues& options, const AttentionSize& size) {
            const auto keys = static_cast<double>(2 * options.get<int64_t>("radius") + 1 +
                                                  2 * options.get<int64_t>("global_tokens"));
            return 2 * keys * static_cast<double>(size.dim) * static_cast<double>(size.length);
          },
      .test_options = {{"global_tokens", int64_t{2}}, {"radius", int64_t{2}}, {"max_distance", int64_t{1}}}};
}

}  // namespace tapeformer
