#include "ops/kernels/softmax_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <numbers>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/row_stream.h"
#include "ops/cuda/softmax_tiles.h"

// Softmax attention. Each block computes the result, or a gradient, of a tile of kTokens queries or keys of a
// head, and visits the tiles of keys or queries that attend to each other. Powers of two replace the
// exponential function: exp(scale x) = 2^(multiplier x), with multiplier = scale / log 2.
namespace tapeformer::cuda {
namespace {

// Number of blocks of a kernel that must fit on a multiprocessor at the same time (__launch_bounds__). It is
// the largest number with which the compiler spills no registers. Gradients of keys and values, and kernels
// with a KeyPattern, need more registers. The emulation does not use the number.
template <class Stream, class Pattern, bool kIsKeyGradient = false>
[[maybe_unused]] inline constexpr int kResidentBlocks =
    std::max(1, Stream::kBlocks - (kIsKeyGradient && Stream::kColumns > 32 ? 1 : 0) -
                    (std::is_same_v<Pattern, AllKeys> ? 0 : 1));

// Replaces the elements in row i of the thread whose bits are 0. Bit 0 belongs to column 0 of the tile.
template <class Tile, class T>
__device__ void clear_row(Tile& tile, int i, uint64_t bits, T value) {
  bits >>= Tile::column(0);
#pragma unroll(kUnrolled <T>)
  for (int j = 0; j < Tile::kColumnsEach; ++j)
    if (!(bits >> Tile::column_offset(j) & 1)) tile.elements[i][j] = value;
}

// The online softmax of the rows of a tile of queries. A thread has its share of the sums of its rows.
template <class Scores, class T>
struct OnlineRows {
  static constexpr T kInfinity = std::numeric_limits<T>::infinity();
  T multiplier;
  T maximum[Scores::kRowsEach], sum[Scores::kRowsEach] = {};  // maxima of scores before multiplication

  __device__ explicit OnlineRows(T scale) : multiplier(scale) {
    for (T& row : maximum) row = -kInfinity;
  }
  // Replaces row i of the scores by weights that are relative to the maximum. Multiplies the results of
  // earlier tiles by the change of the weights.
  template <class Result>
  __device__ void update(Scores& scores, Result& result, int i) {
    T largest = maximum[i];
    for (const T score : scores.elements[i]) largest = std::fmax(largest, score);
    largest = Scores::template row_reduce<Maximum>(largest);
    const T shift = multiplier * (largest == -kInfinity ? T{0} : largest);
    const T rescale = fast_exp2(multiplier * maximum[i] - shift);
    T total = rescale * sum[i];
#pragma unroll(kUnrolled <T>)
    for (T& score : scores.elements[i]) {
      score = fast_exp2(multiplier * score - shift);
      total += score;
    }
    maximum[i] = largest;
    sum[i] = total;
    for (T& element : result.elements[i]) element *= rescale;
  }
};

// Writes a tile of results times `factor`.
template <class Tile, class S, class Head>
__device__ void store_tile(const Tile& tile, const AttentionRows<S>& target, const Head& head, int64_t begin,
                           int64_t column, int64_t length, int64_t width, Compute<S> factor) {
#pragma unroll(kUnrolled <Compute <S>>)
  for (int i = 0; i < tile.kRowsEach; ++i)
#pragma unroll(kUnrolled <Compute <S>>)
    for (int j = 0; j < tile.kColumnsEach; ++j) {
      const int64_t position = begin + tile.row(i), feature = column + tile.column(j);
      if (position < length && feature < width)
        target.row(head.example, position, head.head)[feature] =
            convert_element<S>(factor * tile.elements[i][j]);
    }
}

// Computes the result of kTokens queries of a head per block. blockIdx.y selects a tile of the result. In
// causal attention, the last queries attend to the most keys, so their blocks come first.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern>)
    forward_kernel(SoftmaxInputs<S> in, unsigned blocks, S* out, T* log_sums) {
  using Scores = typename Stream::template Tile<kTokens, kTokens>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const int64_t begin = int64_t{blocks - 1 - blockIdx.x % blocks} * kTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale);
  Stream stream({head.q, head.q}, begin, {head.k, head.v}, column);
  typename Stream::template Tile<kTokens, Stream::kColumns> result;
  // The maximum of products is the maximum of scores only if the scale is positive.
  OnlineRows<Scores, T> rows(kLog2E<T> * (scale > 0 ? scale : T{1}));
  int64_t key = head.next_key_tile(begin, 0);
  stream.template start<1>(key);
  masks.prepare(in, head, begin, key, false);
  while (key < head.keys) {
    key = head.next_key_tile(begin, key + kTokens);
    stream.advance(key);
    masks.advance();
    masks.prepare(in, head, begin, key, false);
    Scores scores;
    stream.template add_row_products<0>(scores, 0);
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < Scores::kRowsEach; ++i) {
      if (!(scale > 0))
        for (T& score : scores.elements[i]) score *= scale;
      if (masks.masked()) clear_row(scores, i, masks.seen(Scores::row(i)), -rows.kInfinity);
      rows.update(scores, result, i);
      if (masks.drops()) clear_row(scores, i, masks.kept(Scores::row(i)), T{0});
    }
    stream.template add_products_of<1>(result, scores, 0);
  }
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Scores::kRowsEach; ++i) {
    const int64_t query = begin + Scores::row(i);
    const T sum = Scores::template row_reduce<Plus>(rows.sum[i]);
    for (T& element : result.elements[i]) element = sum == 0 ? T{0} : element / sum;
    if (column == 0 && query < head.queries && Scores::first_of_row())
      log_sums[head.index * head.queries + query] =
          sum == 0 ? -rows.kInfinity : rows.multiplier * rows.maximum[i] / kLog2E<T> + std::log(sum);
  }
  store_tile(result, make_contiguous_rows(out, head.queries, in.s.heads, in.s.value_dim), head, begin, column,
             head.queries, in.s.value_dim, masks.scale());
}

// Computes the weight of a key from the product q . k, and the gradient of the score from the product g . v.
// `factor` is the dropout multiplier. The weight is returned without dropout, and the gradient without the
// scale.
template <class T>
__device__ void score_gradient(T multiplier, T factor, T log_sum, T delta, T& weight, T& gradient) {
  weight = fast_exp2(multiplier * weight - log_sum);
  gradient = weight * (gradient * factor - delta);
}

// Computes the gradient of kTokens queries of a head per block. blockIdx.y selects a tile of the gradient.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern>)
    query_gradient_kernel(SoftmaxInputs<S> in, unsigned blocks, AttentionRows<S> gq) {
  using Scores = typename Stream::template Tile<kTokens, Stream::kScores>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const int64_t begin = int64_t{blocks - 1 - blockIdx.x % blocks} * kTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale), multiplier = kLog2E<T> * scale;
  Stream stream({head.q, head.g}, begin, {head.k, head.v}, column);
  typename Stream::template Tile<kTokens, Stream::kColumns> result;
  T log_sums[Scores::kRowsEach] = {}, deltas[Scores::kRowsEach] = {};
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Scores::kRowsEach; ++i) {
    const int64_t query = begin + Scores::row(i), at = head.index * head.queries + query;
    if (query >= head.queries) continue;
    log_sums[i] = kLog2E<T> * in.log_sums[at];
    deltas[i] = in.deltas[at];
  }
  int64_t key = head.next_key_tile(begin, 0);
  stream.template start<2>(key);
  masks.prepare(in, head, begin, key, false);
  while (key < head.keys) {
    key = head.next_key_tile(begin, key + kTokens);
    stream.advance(key);
    masks.advance();
    masks.prepare(in, head, begin, key, false);
#pragma unroll 1
    for (int first = 0; first < kTokens; first += Stream::kScores) {
      Scores scores, gradients;
      stream.template add_row_products<0>(scores, first);
      stream.template add_row_products<1>(gradients, first);
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < Scores::kRowsEach; ++i) {
        if (masks.drops()) {
          for (T& gradient : gradients.elements[i]) gradient *= masks.scale();
          clear_row(gradients, i, masks.kept(Scores::row(i)) >> first, T{0});
        }
#pragma unroll(kUnrolled <T>)
        for (int j = 0; j < Scores::kColumnsEach; ++j)
          score_gradient(multiplier, T{1}, log_sums[i], deltas[i], scores.elements[i][j],
                         gradients.elements[i][j]);
        if (masks.masked()) clear_row(gradients, i, masks.seen(Scores::row(i)) >> first, T{0});
      }
      stream.template add_products_of<0>(result, gradients, first);
    }
  }
  store_tile(result, gq, head, begin, column, head.queries, in.s.dim, scale);
}

// Replaces column j of the products k . q and v . g of a tile of keys by the weights and by the gradients of
// the scores of a query.
template <class Scores, class T>
__device__ void column_gradients(const TileMasks<T>& masks, T multiplier, int query, int j, Scores& scores,
                                 Scores& gradients) {
  const T log_sum = masks.log_sum(query), delta = masks.delta(query);
  const uint64_t kept = masks.drops() ? masks.kept(query) : 0;
  const uint64_t seen = masks.masked() ? masks.seen(query) : 0;
#pragma unroll(kUnrolled <T>)
  for (int r = 0; r < Scores::kRowsEach; ++r) {
    T &weight = scores.elements[r][j], &gradient = gradients.elements[r][j];
    const T factor = !masks.drops() ? T{1} : kept >> Scores::row(r) & 1 ? masks.scale() : T{0};
    score_gradient(multiplier, factor, log_sum, delta, weight, gradient);
    weight *= factor;
    if (masks.masked() && !(seen >> Scores::row(r) & 1)) weight = gradient = 0;
  }
}

// Computes the gradients of kTokens keys and values of a head per block. blockIdx.y selects a tile of the
// gradients.
template <class Stream, class Pattern, class T = typename Stream::Value, class S = typename Stream::Stored>
__global__ void __launch_bounds__(Stream::kThreads, kResidentBlocks<Stream, Pattern, true>)
    key_gradient_kernel(SoftmaxInputs<S> in, unsigned blocks, AttentionRows<S> gk, AttentionRows<S> gv) {
  using Scores = typename Stream::template Tile<kTokens, Stream::kScores>;
  __shared__ typename TileMasks<T>::Memory mask_memory;
  TileMasks<T> masks(in.dropout, mask_memory);
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const int64_t begin = int64_t{blockIdx.x % blocks} * kTokens,
                column = int64_t{blockIdx.y} * Stream::kColumns;
  const T scale = static_cast<T>(in.s.scale), multiplier = kLog2E<T> * scale;
  Stream stream({head.k, head.v}, begin, {head.q, head.g}, column);
  typename Stream::template Tile<kTokens, Stream::kColumns> to_key, to_value;
  const bool wants_key = gk.data && column < in.s.dim, wants_value = gv.data && column < in.s.value_dim;
  int64_t query = head.next_query_tile(begin, 0);
  stream.template start<2>(query);
  masks.prepare(in, head, query, begin, true);
  while (query < head.queries) {
    query = head.next_query_tile(begin, query + kTokens);
    stream.advance(query);
    masks.advance();
    masks.prepare(in, head, query, begin, true);
#pragma unroll 1
    for (int first = 0; first < kTokens; first += Stream::kScores) {
      Scores scores, gradients;
      stream.template add_row_products<0>(scores, first);
      stream.template add_row_products<1>(gradients, first);
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < Scores::kColumnsEach; ++j)
        column_gradients(masks, multiplier, first + Scores::column(j), j, scores, gradients);
      if (wants_value) stream.template add_products_of<1>(to_value, scores, first);
      if (wants_key) stream.template add_products_of<0>(to_key, gradients, first);
    }
  }
  if (wants_key) store_tile(to_key, gk, head, begin, column, head.keys, in.s.dim, scale);
  if (wants_value) store_tile(to_value, gv, head, begin, column, head.keys, in.s.value_dim, T{1});
}

// Returns the shape of a launch with its number of operations. `multiply_adds` is the number of multiply-adds
// per query and key. Counts all keys, or half of them in causal attention. Patterns do not reduce the count.
template <class Stream, class S>
Launch blocks_of(const SoftmaxAttentionShape& s, int64_t blocks, int64_t tiles, int64_t multiply_adds) {
  const double pairs =
      static_cast<double>(s.batch * s.heads * s.query_length * s.key_length) * (s.causal ? 0.5 : 1.0);
  return over_tiles(s.batch * s.heads * blocks, tiles, Stream::kThreads, Stream::kBytes)
      .template with_flop<S>(2 * pairs * static_cast<double>(multiply_adds));
}

// Returns whether a TensorStream can read the operands.
template <class S>
bool has_packs(const SoftmaxInputs<S>& in) {
  return cuda::has_packs(in.q, in.s.dim) && cuda::has_packs(in.k, in.s.dim) &&
         cuda::has_packs(in.v, in.s.value_dim) && cuda::has_packs(in.g, in.s.value_dim);
}

// Calls f(stream, pattern) with the type of stream for the operands, as a type_identity, and an AllKeys or
// KeyPattern, whose type selects the kernel. Double, and bfloat16 operands without a TensorStream, use one
// kernel to save compile time.
template <class S, class F>
void with_stream_and_pattern(const SoftmaxInputs<S>& in, F&& f) {
  constexpr bool kIsTensor = std::is_same_v<S, BFloat16>;
  using Widest = SliceStream<TilesFor<S>, kTokens>;
  const int64_t width = std::max(in.s.dim, in.s.value_dim);
  if constexpr (!std::is_same_v<S, double>)
    if (!kIsTensor || (width <= kTokens && has_packs(in)))
      return with_tile_width<float>(width, [&](auto columns) {
        constexpr int kWidth = decltype(columns)::value;
        using Stream = std::conditional_t<kIsTensor, TensorStream<kWidth>, SliceStream<TilesFor<S>, kWidth>>;
        if (in.s.pattern.is_limited()) return f(std::type_identity<Stream>{}, KeyPattern{});
        f(std::type_identity<Stream>{}, AllKeys{});
      });
  f(std::type_identity<Widest>{}, KeyPattern{});
}

}  // namespace

template <class S>
void softmax_attention_forward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v, S* out,
                               Compute<S>* log_sums) {
  using T = Compute<S>;
  const SoftmaxInputs<S> in{s, q, k, v, {}, DropoutFactors<T>(s.dropout), nullptr, nullptr};
  const int64_t blocks = tiles_of(s.query_length, kTokens);
  with_stream_and_pattern(in, [&](auto stream, auto pattern) {
    using Stream = typename decltype(stream)::type;
    launch(forward_kernel<Stream, decltype(pattern)>,
           blocks_of<Stream, S>(s, blocks, tiles_of(s.value_dim, Stream::kColumns), s.dim + s.value_dim), in,
           blocks, out, log_sums);
  });
}

template <class S>
void softmax_attention_backward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                                AttentionRows<const S> k, AttentionRows<const S> v, const S* out,
                                const Compute<S>* log_sums, AttentionRows<const S> g,
                                AttentionGradients<S> gradients) {
  using T = Compute<S>;
  const Scratch<T> deltas(s.batch * s.heads * s.query_length);
  row_dots<S>(g, make_contiguous_rows(out, s.query_length, s.heads, s.value_dim), nullptr, T{1}, s.batch,
              s.query_length, s.heads, s.value_dim, deltas.data());
  const SoftmaxInputs<S> in{s, q, k, v, g, DropoutFactors<T>(s.dropout), log_sums, deltas.data()};
  if (gradients.gq.data)
    with_stream_and_pattern(in, [&](auto stream, auto pattern) {
      using Stream = typename decltype(stream)::type;
      const int64_t blocks = tiles_of(s.query_length, kTokens);
      launch(query_gradient_kernel<Stream, decltype(pattern)>,
             blocks_of<Stream, S>(s, blocks, tiles_of(s.dim, Stream::kColumns), 2 * s.dim + s.value_dim), in,
             blocks, gradients.gq);
    });
  if (gradients.gk.data || gradients.gv.data)
    with_stream_and_pattern(in, [&](auto stream, auto pattern) {
      using Stream = typename decltype(stream)::type;
      const int64_t blocks = tiles_of(s.key_length, kTokens), widest = std::max(s.dim, s.value_dim);
      launch(key_gradient_kernel<Stream, decltype(pattern)>,
             blocks_of<Stream, S>(s, blocks, tiles_of(widest, Stream::kColumns), 2 * (s.dim + s.value_dim)),
             in, blocks, gradients.gk, gradients.gv);
    });
}

template <class T>
struct SoftmaxAttentionKernels {
  inline static const Instances all{&softmax_attention_forward<T>, &softmax_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct SoftmaxAttentionKernels<float>;
                 template struct SoftmaxAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct SoftmaxAttentionKernels<double>;)

}  // namespace tapeformer::cuda
