#include <algorithm>
#include <cmath>

#include "models/attention/attention.h"
#include "models/attention/kinds/softmax.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/relative_attention.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kEtc = "etc";

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
    const int64_t length = q.size(1), globals = std::min(options_.global_tokens, length);
    const Tensor segments = make_segments(globals, length - globals).to(q.dtype()).to(q.device());
    const Tensor global_out = attend_globally(slice(q, 1, 0, globals), k, v, segments, mask, context, name);
    if (length == globals) return global_out;
    return concat({global_out, attend_locally(q, k, v, segments, mask, context, name)}, 1);
  }

 private:
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

  // Returns the segments of the global tokens, (globals, long_length) float64 on the CPU. Element (i, j) is 1
  // if long token j is in the segment of global token i, and otherwise 0.
  Tensor make_segments(int64_t globals, int64_t long_length) const {
    const Tensor result = Tensor::zeros({globals, long_length}, DType::float64);
    for (int64_t i = 0; i < long_length; ++i) {
      const int64_t owner = std::min(i / std::max<int64_t>(segment_, 1), globals - 1);
      result.data<double>()[owner * long_length + i] = 1;
    }
    return result;
  }

  // Returns the dot products of queries (batch, heads, queries, dim) and segment labels, (batch, heads,
  // queries, keys). An element of the matrix `same` (queries, keys) is 1 if the query and the key are in the
  // same segment, and otherwise 0. The labels are rows of segment_labels_: row `first` for pairs in different
  // segments, and row `first` + 1 for pairs in the same segment.
  Tensor segment_scores(const Tensor& queries, const Tensor& same, int64_t first) const {
    const Tensor labels = permute(slice(segment_labels_, 0, first, first + 2), {1, 0, 2});
    const Tensor scores =
        matmul(queries, reshape(labels, {1, labels.size(0), 2, labels.size(2)}), {.transpose_b = true});
    const Tensor different = slice(scores, 3, 0, 1);
    return add(different, mul(sub(slice(scores, 3, 1, 2), different), same));
  }

  // Returns the attention of the global tokens to all tokens. q is (batch, globals, heads, dim).
  Tensor attend_globally(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& segments,
                         const AttentionMask& mask, const ForwardContext& context,
                         const std::string& name) const {
    const int64_t globals = q.size(1);
    const Tensor queries = mul(permute(q, {0, 2, 1, 3}), 1 / std::sqrt(static_cast<double>(q.size(3))));
    const Tensor labels = labels_of_distances(global_labels_, globals - 1);
    const Tensor to_globals = relative_shift(matmul(queries, labels, {.transpose_b = true}), globals);
    Tensor to_long = segment_scores(queries, segments, 0);
    if (options_.segment_mask) to_long = add(to_long, log(segments));
    SoftmaxAttentionOptions options =
        make_softmax_attention_options(q, k, mask, dropout_, context, name + ".global");
    options.bias = concat({to_globals, to_long}, 3);
    return softmax_attention(q, k, v, options);
  }

  // Long tokens are divided into blocks of `radius` tokens. All long tokens to which a long token attends are
  // in its block and in the two neighbouring blocks.
  int64_t block() const { return options_.radius; }

  // Returns the rows of x (batch, length, heads, n) that the long tokens of each block attend to, (batch,
  // blocks, 3 * block() + globals, heads, n): the rows of the previous block, of the block itself, of the
  // next block and of the global tokens. Rows outside the sequence are zeros.
  Tensor rows_of_blocks(const Tensor& x, int64_t globals) const {
    const Tensor blocks = pad(split_into_blocks(slice(x, 1, globals, x.size(1)), 1, block()), 1, 1, 1);
    const int64_t batch = x.size(0), count = blocks.size(1) - 2, heads = x.size(2), width = x.size(3);
    const Tensor global = reshape(slice(x, 1, 0, globals), {batch, 1, globals, heads, width});
    return concat({slice(blocks, 1, 0, count), slice(blocks, 1, 1, count + 1), slice(blocks, 1, 2, count + 2),
                   broadcast_to(global, {batch, count, globals, heads, width})},
                  2);
  }

  // Returns score masks for the rows that rows_of_blocks() returns, (batch or 1, blocks, 1, block(), 3 *
  // block() + globals). An element is -inf if the key is masked, outside the sequence or outside the radius
  // of the query, and otherwise 0.
  Tensor make_block_masks(const Tensor& q, const AttentionMask& mask, int64_t globals) const {
    const int64_t batch = mask.key_lengths.defined() ? q.size(0) : 1, width = 3 * block() + globals;
    const Tensor valid = rows_of_blocks(
        zero_masked_rows(Tensor::full({batch, q.size(1), 1, 1}, 1, q.dtype(), q.device()), mask), globals);
    const Tensor is_near = Tensor::full({block(), width}, 1, DType::float64);
    for (int64_t i = 0; i < block(); ++i)
      for (int64_t j = 0; j < 3 * block(); ++j)
        if (std::abs(j - block() - i) > options_.radius) is_near.data<double>()[i * width + j] = 0;
    return log(
        mul(reshape(valid, {batch, valid.size(1), 1, 1, width}), is_near.to(q.dtype()).to(q.device())));
  }

  // Returns the attention of the long tokens to the global tokens and to near long tokens, (batch, length -
  // globals, heads, dim).
  Tensor attend_locally(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& segments,
                        const AttentionMask& mask, ForwardContext context, const std::string& name) const {
    const int64_t batch = q.size(0), heads = q.size(2), dim = q.size(3), globals = segments.size(0);
    const int64_t length = q.size(1) - globals;
    const Tensor blocks = split_into_blocks(slice(q, 1, globals, q.size(1)), 1, block());
    const int64_t count = blocks.size(1);
    const Tensor queries =
        mul(reshape(permute(blocks, {0, 3, 1, 2, 4}), {batch, heads, count * block(), dim}),
            1 / std::sqrt(static_cast<double>(dim)));
    const auto by_block = [&](const Tensor& x) {
      return permute(reshape(x, {batch, heads, count, block(), x.size(3)}), {0, 2, 1, 3, 4});
    };
    const Tensor labels = labels_of_distances(long_labels_, 2 * block() - 1);
    const Tensor to_long =
        relative_shift(by_block(matmul(queries, labels, {.transpose_b = true})), 3 * block());
    const Tensor same = pad(transpose(segments, 0, 1), 0, 0, count * block() - length);
    const Tensor to_globals = by_block(segment_scores(queries, same, 2));
    const Tensor bias = add(concat({to_long, to_globals}, 4), make_block_masks(q, mask, globals));

    const auto joined = [&](const Tensor& x) {
      return reshape(x, {batch * count, x.size(2), x.size(3), x.size(4)});
    };
    const Tensor keys = joined(rows_of_blocks(k, globals));
    context.first_example *= count;
    SoftmaxAttentionOptions options = make_softmax_attention_options(
        joined(blocks), keys, {.causal = false, .key_lengths = {}}, dropout_, context, name + ".long");
    options.bias = joined(bias);
    const Tensor out = softmax_attention(joined(blocks), keys, joined(rows_of_blocks(v, globals)), options);
    return slice(reshape(out, {batch, count * block(), heads, v.size(3)}), 1, 0, length);
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
