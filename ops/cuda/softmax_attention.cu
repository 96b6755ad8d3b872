#include "ops/kernels/softmax_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/row_dots.h"
#include "ops/cuda/row_stream.h"
#include "ops/cuda/softmax_tiles.h"

// Softmax attention. Each thread block computes the result or the gradient of a tile of kTileTokens queries,
// or the gradients of a tile of kTileTokens keys. A thread block for a tile of queries loops over the tiles
// of keys to which these queries attend. A thread block for a tile of keys loops over the tiles of queries
// that attend to these keys. Exponentials are computed as powers of two: exp(scale * x) = 2^(multiplier * x),
// where multiplier = scale / log(2).
namespace tapeformer::cuda {
namespace {

// The second argument of __launch_bounds__: the minimum number of resident thread blocks per multiprocessor.
// With a larger minimum, nvcc would spill registers to local memory. Kernels for the gradients of keys and
// values, and kernels with a KeyPattern, need more registers.
template <class Stream, class Pattern, bool kIsKeyGradient = false>
[[maybe_unused]] inline constexpr int kResidentBlocks =
    std::max(1, Stream::kMaxResidentBlocks - (kIsKeyGradient && Stream::kColumns > 32 ? 1 : 0) -
                    (std::is_same_v<Pattern, AllKeys> ? 0 : 1));

// Sets the masked elements in row i of the calling thread to `value`. The element in column c of the tile is
// masked if bit c of `bits` is 0.
template <class Tile, class T>
__device__ void set_masked_elements(Tile& tile, int i, uint64_t bits, T value) {
  bits >>= Tile::column(0);
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Tile::kColumnsPerThread; ++j)
    if (!(bits >> Tile::column_offset(j) & 1)) tile.elements[i][j] = value;
}

// The online softmax of a tile of queries. For each row that a thread processes, the thread holds the maximum
// score of the tiles processed so far, and the sum of the weights in the columns that the thread processes.
template <class Scores, class T>
struct OnlineSoftmax {
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  T multiplier;
  T maximum[Scores::kRowsPerThread];  // maxima of the scores before multiplication by `multiplier`
  T sum[Scores::kRowsPerThread] = {};

  __device__ explicit OnlineSoftmax(T scale) : multiplier(scale) {
    for (T& row : maximum) row = -kInfinity;
  }
  // Adds row i of a tile of scores to the softmax. Updates the maximum of the row, and replaces each score by
  // the weight 2^(multiplier * (score - maximum)). Row i of `result`, the sum of the weighted values of the
  // earlier tiles, is rescaled to the new maximum.
  template <class Result>
  __device__ void update(Scores& scores, Result& result, int i) {
    T largest = maximum[i];
    for (const T score : scores.elements[i]) largest = std::fmax(largest, score);
    largest = Scores::template reduce_row<Maximum>(largest);
    const T shift = multiplier * (largest == -kInfinity ? T{0} : largest);
    const T rescale_factor = fast_exp2(multiplier * maximum[i] - shift);
    T total = rescale_factor * sum[i];
#pragma unroll(kUnrollFactor <T>)
    for (T& score : scores.elements[i]) {
      score = fast_exp2(multiplier * score - shift);
      total += score;
    }
    maximum[i] = largest;
    sum[i] = total;
    for (T& element : result.elements[i]) element *= rescale_factor;
  }
};

// Calls f(element, row of `rows`, key) for each element of a tile whose query and key are in the sequence.
// The tile begins at (query, key). The rows of the tile are keys if kIsTransposed is true, and queries
// otherwise.
template <bool kIsTransposed, class Tile, class T, class Head, class F>
__device__ void for_each_pair(Tile& tile, const AttentionRows<T>& rows, const Head& head, int64_t query,
                              int64_t key, F&& f) {
#pragma unroll(kUnrollFactor <std::remove_const_t <T>>)
  for (int i = 0; i < Tile::kRowsPerThread; ++i)
#pragma unroll(kUnrollFactor <std::remove_const_t <T>>)
    for (int j = 0; j < Tile::kColumnsPerThread; ++j) {
      const int64_t q = query + (kIsTransposed ? Tile::column(j) : Tile::row(i)),
                    k = key + (kIsTransposed ? Tile::row(i) : Tile::column(j));
      if (q < head.query_count && k < head.key_count)
        f(tile.elements[i][j], rows.row(head.example, q, head.head), k);
    }
}
// Adds the bias, divided by the scale, to a tile of products q . k. Does nothing for other patterns than
// KeyPatternAndBias.
template <class Pattern, bool kIsTransposed = false, class Tile, class S, class Head>
__device__ void add_bias(Tile& tile, const SoftmaxAttentionInputs<S>& in, const Head& head, int64_t query,
                         int64_t key) {
  using T = Compute<S>;
  if constexpr (std::is_same_v<Pattern, KeyPatternAndBias>)
    if (in.bias.data)
      for_each_pair<kIsTransposed>(tile, in.bias, head, query, key,
                                   [factor = static_cast<T>(1 / in.s.scale)](
                                       T& element, const T* row, int64_t k) { element += factor * row[k]; });
}
// Writes a tile of gradients of scores to in.gbias. Does nothing for other patterns than KeyPatternAndBias.
template <class Pattern, class Tile, class S, class Head>
__device__ void store_bias_gradient(const Tile& tile, const SoftmaxAttentionInputs<S>& in, const Head& head,
                                    int64_t query, int64_t key) {
  using T = Compute<S>;
  if constexpr (std::is_same_v<Pattern, KeyPatternAndBias>)
    if (in.gbias.data)
      for_each_pair<false>(tile, in.gbias, head, query, key,
                           [](const T& element, T* row, int64_t k) { row[k] = element; });
}

// Writes a tile, multiplied by `factor`, to the rows of one head of `target`. The first row of the tile is
// written to position `begin`, and the first column to feature `column`. Elements outside of the `length`
// positions and the `width` features are not written.
template <class Tile, class S, class Head>
__device__ void store_tile(const Tile& tile, const AttentionRows<S>& target, const Head& head, int64_t begin,
                           int64_t column, int64_t length, int64_t width, Compute<S> factor) {
#pragma unroll(kUnrollFactor <Compute <S>>)
  for (int i = 0; i < tile.kRowsPerThread; ++i)
#pragma unroll(kUnrollFactor <Compute <S>>)
    for (int j = 0; j < tile.kColumnsPerThread; ++j) {
      const int64_t position = begin + tile.row(i), feature = column + tile.column(j);
      if (position < length && feature < width)
        target.row(head.example, position, head.head)[feature] =
            convert_element<S>(factor * tile.elements[i][j]);
    }
}

// Computes the result of kTileTokens queries of a head per block. blockIdx.y selects the columns of the
// result. In causal attention, the last queries attend to the most keys, so the blocks with the last queries
// start first. blocks_per_head is the number of blocks along x for each head.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern>)
    forward_kernel(SoftmaxAttentionInputs<S> in, unsigned blocks_per_head, S* out, T* log_sums) {
  using Scores = typename Stream::template Tile<kTileTokens, kTileTokens>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxAttentionHead<S, Pattern> head(in, blockIdx.x / blocks_per_head);
  const int64_t begin = int64_t{blocks_per_head - 1 - blockIdx.x % blocks_per_head} * kTileTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale);
  Stream stream({head.q, head.q}, begin, {head.k, head.v}, column);
  typename Stream::template Tile<kTileTokens, Stream::kColumns> result;
  // If the scale is not positive, the maximum of the products q . k does not give the maximum of the scores.
  // In this case, the products are multiplied by the scale before softmax.update().
  OnlineSoftmax<Scores, T> softmax(kLog2E<T> * (scale > 0 ? scale : T{1}));
  int64_t key = head.find_next_key_tile(begin, 0);
  stream.template start_loads<1>(key);
  masks.compute_next_masks(in, head, begin, key, false);
  while (key < head.key_count) {
    const int64_t first_key = key;
    key = head.find_next_key_tile(begin, key + kTileTokens);
    stream.advance(key);
    masks.advance();
    masks.compute_next_masks(in, head, begin, key, false);
    Scores scores;
    stream.template add_row_products<0>(scores, 0);
    add_bias<Pattern>(scores, in, head, begin, first_key);
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      if (!(scale > 0))
        for (T& score : scores.elements[i]) score *= scale;
      if (masks.has_masked_pairs())
        set_masked_elements(scores, i, masks.attention_mask(Scores::row(i)), -softmax.kInfinity);
      softmax.update(scores, result, i);
      if (masks.has_dropout()) set_masked_elements(scores, i, masks.dropout_mask(Scores::row(i)), T{0});
    }
    stream.template add_tile_product<1>(result, scores, 0);
  }
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) {
    const int64_t query = begin + Scores::row(i);
    const T sum = Scores::template reduce_row<Plus>(softmax.sum[i]);
    for (T& element : result.elements[i]) element = sum == 0 ? T{0} : element / sum;
    if (column == 0 && query < head.query_count && Scores::is_row_leader())
      log_sums[head.head_index * head.query_count + query] =
          sum == 0 ? -softmax.kInfinity : softmax.multiplier * softmax.maximum[i] / kLog2E<T> + std::log(sum);
  }
  store_tile(result, make_contiguous_rows(out, head.query_count, in.s.heads, in.s.value_dim), head, begin,
             column, head.query_count, in.s.value_dim, masks.dropout_scale());
}

// Computes the softmax weight of a query and a key before dropout, and the gradient of their score.
//   multiplier   scale / log(2)
//   factor       dropout multiplier
//   log_sum      log-sum-exp of the scores of the query, divided by log(2)
//   delta        dot product g . out, where g is the gradient of `out`
//   weight       on input: q . k; on output: the weight
//   gradient     on input: g . v; on output: the gradient of the score scale * (q . k)
template <class T>
__device__ void compute_score_gradient(T multiplier, T factor, T log_sum, T delta, T& weight, T& gradient) {
  weight = fast_exp2(multiplier * weight - log_sum);
  gradient = weight * (gradient * factor - delta);
}

// Computes the gradient of kTileTokens queries of a head per block. blockIdx.y selects the columns of the
// gradient.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern>)
    query_gradient_kernel(SoftmaxAttentionInputs<S> in, unsigned blocks_per_head, AttentionRows<S> gq) {
  using Scores = typename Stream::template Tile<kTileTokens, Stream::kScoreColumns>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxAttentionHead<S, Pattern> head(in, blockIdx.x / blocks_per_head);
  const int64_t begin = int64_t{blocks_per_head - 1 - blockIdx.x % blocks_per_head} * kTileTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale), multiplier = kLog2E<T> * scale;
  Stream stream({head.q, head.g}, begin, {head.k, head.v}, column);
  typename Stream::template Tile<kTileTokens, Stream::kColumns> result;
  T log_sums[Scores::kRowsPerThread] = {}, deltas[Scores::kRowsPerThread] = {};
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) {
    const int64_t query = begin + Scores::row(i), row = head.head_index * head.query_count + query;
    if (query >= head.query_count) continue;
    log_sums[i] = in.load_log_sum(row);
    deltas[i] = in.deltas[row];
  }
  int64_t key = head.find_next_key_tile(begin, 0);
  stream.template start_loads<2>(key);
  masks.compute_next_masks(in, head, begin, key, false);
  while (key < head.key_count) {
    const int64_t first_key = key;
    key = head.find_next_key_tile(begin, key + kTileTokens);
    stream.advance(key);
    masks.advance();
    masks.compute_next_masks(in, head, begin, key, false);
#pragma unroll 1
    for (int first = 0; first < kTileTokens; first += Stream::kScoreColumns) {
      Scores scores, gradients;
      stream.template add_row_products<0>(scores, first);
      stream.template add_row_products<1>(gradients, first);
      add_bias<Pattern>(scores, in, head, begin, first_key + first);
#pragma unroll(kUnrollFactor <T>)
      for (int i = 0; i < Scores::kRowsPerThread; ++i) {
        if (masks.has_dropout()) {
          for (T& gradient : gradients.elements[i]) gradient *= masks.dropout_scale();
          set_masked_elements(gradients, i, masks.dropout_mask(Scores::row(i)) >> first, T{0});
        }
#pragma unroll(kUnrollFactor <T>)
        for (int j = 0; j < Scores::kColumnsPerThread; ++j)
          compute_score_gradient(multiplier, T{1}, log_sums[i], deltas[i], scores.elements[i][j],
                                 gradients.elements[i][j]);
        if (masks.has_masked_pairs())
          set_masked_elements(gradients, i, masks.attention_mask(Scores::row(i)) >> first, T{0});
      }
      if (column == 0) store_bias_gradient<Pattern>(gradients, in, head, begin, first_key + first);
      stream.template add_tile_product<0>(result, gradients, first);
    }
  }
  if (gq.data) store_tile(result, gq, head, begin, column, head.query_count, in.s.dim, scale);
}

// Computes the weights and score gradients of one query for all keys of a tile. The rows of `scores` and
// `gradients` correspond to keys, and column j of the calling thread corresponds to query `query` of the
// tile. On input, `scores` contains the products q . k, and `gradients` contains the products g . v. On
// output, `scores` contains the attention weights after dropout, and `gradients` contains the gradients of
// the scores.
template <class Scores, class T>
__device__ void compute_column_gradients(const TileMasks<T>& masks, T multiplier, int query, int j,
                                         Scores& scores, Scores& gradients) {
  const T log_sum = masks.log_sum(query), delta = masks.delta(query);
  const uint64_t dropout_mask = masks.has_dropout() ? masks.dropout_mask(query) : 0;
  const uint64_t attention_mask = masks.has_masked_pairs() ? masks.attention_mask(query) : 0;
#pragma unroll(kUnrollFactor <T>)
  for (int r = 0; r < Scores::kRowsPerThread; ++r) {
    T &weight = scores.elements[r][j], &gradient = gradients.elements[r][j];
    const T factor = !masks.has_dropout()                 ? T{1}
                     : dropout_mask >> Scores::row(r) & 1 ? masks.dropout_scale()
                                                          : T{0};
    compute_score_gradient(multiplier, factor, log_sum, delta, weight, gradient);
    weight *= factor;
    if (masks.has_masked_pairs() && !(attention_mask >> Scores::row(r) & 1)) weight = gradient = 0;
  }
}

// Computes the gradients of kTileTokens keys and values of a head per block. blockIdx.y selects the columns
// of the gradients.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern, true>)
    key_gradient_kernel(SoftmaxAttentionInputs<S> in, unsigned blocks_per_head, AttentionRows<S> gk,
                        AttentionRows<S> gv) {
  using Scores = typename Stream::template Tile<kTileTokens, Stream::kScoreColumns>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxAttentionHead<S, Pattern> head(in, blockIdx.x / blocks_per_head);
  const int64_t begin = int64_t{blockIdx.x % blocks_per_head} * kTileTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale), multiplier = kLog2E<T> * scale;
  Stream stream({head.k, head.v}, begin, {head.q, head.g}, column);
  typename Stream::template Tile<kTileTokens, Stream::kColumns> key_gradient, value_gradient;
  const bool needs_key_gradient = gk.data && column < in.s.dim,
             needs_value_gradient = gv.data && column < in.s.value_dim;
  int64_t query = head.find_next_query_tile(begin, 0);
  stream.template start_loads<2>(query);
  masks.compute_next_masks(in, head, query, begin, true);
  while (query < head.query_count) {
    const int64_t first_query = query;
    query = head.find_next_query_tile(begin, query + kTileTokens);
    stream.advance(query);
    masks.advance();
    masks.compute_next_masks(in, head, query, begin, true);
#pragma unroll 1
    for (int first = 0; first < kTileTokens; first += Stream::kScoreColumns) {
      Scores scores, gradients;
      stream.template add_row_products<0>(scores, first);
      stream.template add_row_products<1>(gradients, first);
      add_bias<Pattern, true>(scores, in, head, first_query + first, begin);
#pragma unroll(kUnrollFactor <T>)
      for (int j = 0; j < Scores::kColumnsPerThread; ++j)
        compute_column_gradients(masks, multiplier, first + Scores::column(j), j, scores, gradients);
      if (needs_value_gradient) stream.template add_tile_product<1>(value_gradient, scores, first);
      if (needs_key_gradient) stream.template add_tile_product<0>(key_gradient, gradients, first);
    }
  }
  if (needs_key_gradient) store_tile(key_gradient, gk, head, begin, column, head.key_count, in.s.dim, scale);
  if (needs_value_gradient)
    store_tile(value_gradient, gv, head, begin, column, head.key_count, in.s.value_dim, T{1});
}

// Computes the sums of x (batch, length, heads, dim) over the heads that belong to one head of `out`, (batch,
// length, heads / group, dim).
template <class S>
__global__ void sum_head_groups_kernel(const S* x, int64_t batch, int64_t length, int64_t heads,
                                       int64_t group, int64_t dim, AttentionRows<S> out) {
  using T = Compute<S>;
  const int64_t key_heads = heads / group;
  for (int64_t i = first_element(); i < batch * length * key_heads * dim; i += element_stride()) {
    const int64_t d = i % dim, head = i / dim % key_heads, row = i / dim / key_heads;
    T total = 0;
    for (int64_t h = 0; h < group; ++h)
      total += convert_element<T>(x[(row * heads + head * group + h) * dim + d]);
    out.row(row / length, row % length, head)[d] = convert_element<S>(total);
  }
}

// The target of the gradients of keys or values, with one head for each head of queries. If several heads of
// queries read one head of keys, this is a buffer.
template <class S>
class KeyGradientTarget {
 public:
  KeyGradientTarget(const SoftmaxAttentionShape& s, int64_t dim, AttentionRows<S> gradient)
      : shape_(s),
        dim_(dim),
        gradient_(gradient),
        buffer_(gradient.data && s.head_group > 1 ? s.batch * s.key_length * s.heads * dim : 0) {}
  AttentionRows<S> rows() {
    if (!gradient_.data || shape_.head_group == 1) return gradient_;
    return make_contiguous_rows(buffer_.data(), shape_.key_length, shape_.heads, dim_);
  }
  void finish() {
    if (!gradient_.data || shape_.head_group == 1) return;
    const int64_t elements = shape_.batch * shape_.key_length * shape_.heads / shape_.head_group * dim_;
    launch(sum_head_groups_kernel<S>, make_elementwise_launch(elements), buffer_.data(), shape_.batch,
           shape_.key_length, shape_.heads, shape_.head_group, dim_, gradient_);
  }

 private:
  const SoftmaxAttentionShape& shape_;
  int64_t dim_;
  AttentionRows<S> gradient_;
  Scratch<S> buffer_;
};

// Returns a launch configuration with `blocks_per_head` thread blocks along x for each head, and
// `column_tiles` thread blocks along y.
template <class Stream>
LaunchConfig make_launch(const SoftmaxAttentionShape& s, int64_t blocks_per_head, int64_t column_tiles) {
  return make_tile_launch(s.batch * s.heads * blocks_per_head, column_tiles, Stream::kThreads,
                          Stream::kSharedMemoryBytes);
}

// Returns whether the operands are aligned as TensorCoreRowStream requires.
template <class S>
bool can_use_tensor_stream(const SoftmaxAttentionInputs<S>& in) {
  return are_aligned_to_packs(in.q, in.s.dim) && are_aligned_to_packs(in.k, in.s.dim) &&
         are_aligned_to_packs(in.v, in.s.value_dim) && are_aligned_to_packs(in.g, in.s.value_dim);
}

// Calls f(std::type_identity<Stream>{}, Pattern{}), where Stream and Pattern are the template arguments of
// the kernel. To save compile time, operands with a bias and all double operands use KeyPatternAndBias and a
// SliceRowStream of width kTileTokens. If TensorCoreRowStream does not support the rows of bfloat16 operands,
// they use KeyPattern and a SliceRowStream of this width.
template <class S, class F>
void with_stream_and_pattern(const SoftmaxAttentionInputs<S>& in, F&& f) {
  constexpr bool kIsTensor = std::is_same_v<S, BFloat16>;
  using Widest = SliceRowStream<TilesFor<S>, kTileTokens>;
  const int64_t width = std::max(in.s.dim, in.s.value_dim);
  if (std::is_same_v<S, double> || in.bias.data) return f(std::type_identity<Widest>{}, KeyPatternAndBias{});
  if constexpr (!std::is_same_v<S, double>) {
    if (!kIsTensor || (width <= kTileTokens && can_use_tensor_stream(in)))
      return visit_tile_width<float>(width, [&](auto columns) {
        constexpr int kWidth = decltype(columns)::value;
        using Stream =
            std::conditional_t<kIsTensor, TensorCoreRowStream<kWidth>, SliceRowStream<TilesFor<S>, kWidth>>;
        if (in.s.pattern.is_limited()) return f(std::type_identity<Stream>{}, KeyPattern{});
        f(std::type_identity<Stream>{}, AllKeys{});
      });
    f(std::type_identity<Widest>{}, KeyPattern{});
  }
}

}  // namespace

template <class S>
void softmax_attention_forward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v,
                               AttentionRows<const Compute<S>> bias, S* out, Compute<S>* log_sums) {
  using T = Compute<S>;
  const SoftmaxAttentionInputs<S> in{s,       q,       k,   v, {}, DropoutMultipliers<T>(s.dropout),
                                     nullptr, nullptr, bias};
  const int64_t blocks_per_head = count_tiles(s.query_length, kTileTokens);
  with_stream_and_pattern(in, [&](auto stream, auto pattern) {
    using Stream = typename decltype(stream)::type;
    launch(forward_kernel<Stream, decltype(pattern)>,
           make_launch<Stream>(s, blocks_per_head, count_tiles(s.value_dim, Stream::kColumns)), in,
           blocks_per_head, out, log_sums);
  });
}

template <class S>
void softmax_attention_backward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                                AttentionRows<const S> k, AttentionRows<const S> v,
                                AttentionRows<const Compute<S>> bias, const S* out,
                                const Compute<S>* log_sums, AttentionRows<const S> g,
                                AttentionGradients<S> gradients, AttentionRows<Compute<S>> gbias) {
  using T = Compute<S>;
  const Scratch<T> deltas(s.batch * s.heads * s.query_length);
  compute_row_dots<S>(g, make_contiguous_rows(out, s.query_length, s.heads, s.value_dim), s.batch,
                      s.query_length, s.heads, s.value_dim, deltas.data());
  const SoftmaxAttentionInputs<S> in{
      s, q, k, v, g, DropoutMultipliers<T>(s.dropout), log_sums, deltas.data(), bias, gbias};
  if (gradients.gq.data || gbias.data)
    with_stream_and_pattern(in, [&](auto stream, auto pattern) {
      using Stream = typename decltype(stream)::type;
      const int64_t blocks_per_head = count_tiles(s.query_length, kTileTokens);
      launch(query_gradient_kernel<Stream, decltype(pattern)>,
             make_launch<Stream>(s, blocks_per_head, count_tiles(s.dim, Stream::kColumns)), in,
             blocks_per_head, gradients.gq);
    });
  if (!gradients.gk.data && !gradients.gv.data) return;
  KeyGradientTarget<S> gk(s, s.dim, gradients.gk), gv(s, s.value_dim, gradients.gv);
  with_stream_and_pattern(in, [&](auto stream, auto pattern) {
    using Stream = typename decltype(stream)::type;
    const int64_t blocks_per_head = count_tiles(s.key_length, kTileTokens),
                  widest = std::max(s.dim, s.value_dim);
    launch(key_gradient_kernel<Stream, decltype(pattern)>,
           make_launch<Stream>(s, blocks_per_head, count_tiles(widest, Stream::kColumns)), in,
           blocks_per_head, gk.rows(), gv.rows());
  });
  gk.finish();
  gv.finish();
}

template <class T>
struct SoftmaxAttentionKernels {
  inline static const FunctionInstances all{&softmax_attention_forward<T>, &softmax_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct SoftmaxAttentionKernels<float>;
                 template struct SoftmaxAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct SoftmaxAttentionKernels<double>;)

}  // namespace tapeformer::cuda
