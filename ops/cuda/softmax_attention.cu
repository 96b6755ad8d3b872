#include "ops/kernels/softmax_attention.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {
namespace {

template <class T>
struct SoftmaxInputs {
  SoftmaxAttentionShape s;
  AttentionRows<const T> q, k, v, g;
  DropoutFactors<T> dropout;
  const T *log_sums, *deltas;  // (batch, heads, query_length); deltas: g . out
};

// The operands of one head, and which keys a query sees: those before limit(i), which never decreases.
template <class T>
struct SoftmaxHead {
  int64_t index, example, head, queries, keys, counted;
  bool causal;
  PlainRows<T> q, k, v, g;

  __device__ SoftmaxHead(const SoftmaxInputs<T>& in, int64_t number)
      : index(number),
        example(number / in.s.heads),
        head(number % in.s.heads),
        queries(in.s.query_length),
        keys(in.s.key_length),
        counted(keys),
        causal(in.s.causal) {
    if (in.s.key_lengths) {
      const int64_t length = in.s.key_lengths[example];  // of a device, so that nobody has checked it
      counted = length < 0 ? 0 : length < keys ? length : keys;
    }
    q = {in.q.row(example, 0, head), in.q.length_stride, queries, in.s.dim};
    k = {in.k.row(example, 0, head), in.k.length_stride, counted, in.s.dim};
    v = {in.v.row(example, 0, head), in.v.length_stride, counted, in.s.value_dim};
    if (in.g.data) g = {in.g.row(example, 0, head), in.g.length_stride, queries, in.s.value_dim};
  }
  __device__ int64_t limit(int64_t query) const {
    if (query >= queries) return 0;
    const int64_t last = query + 1 + keys - queries;
    return !causal || last > counted ? counted : last < 0 ? 0 : last;
  }
  // Of the queries of a block of kTokens.
  __device__ int64_t largest_limit(int64_t begin) const {
    return limit((begin + kTokens < queries ? begin + kTokens : queries) - 1);
  }
  __device__ int64_t first_query_seeing(int64_t key) const {
    const int64_t first = causal ? key - (keys - queries) : 0;
    return first < 0 ? 0 : first;
  }
  __device__ T dropout_factor(const SoftmaxInputs<T>& in, int64_t query, int64_t key) const {
    return in.dropout.of((index * queries + query) * keys + key);
  }
};

// Shared memory of the kernels below.
template <class T>
struct Slices {
  T *left, *right;  // slices of operands
  T* weights;       // (kTokens, kTileStride): a tile of weights, transposed

  static constexpr size_t kBytes = (2 * kSliceElements<kTokens> + kTokens * kTileStride<kTokens>)*sizeof(T);
  __device__ explicit Slices(T* memory)
      : left(memory), right(left + kSliceElements<kTokens>), weights(right + kSliceElements<kTokens>) {}
};

template <class T>
using Scores = Tile<T, kTokens, kTokens>;

// tile += rows of a times rows of b.
template <class T>
__device__ void add_row_products(Scores<T>& tile, const Slices<T>& slices, const PlainRows<T>& a,
                                 int64_t a_begin, const PlainRows<T>& b, int64_t b_begin) {
  add_products<Lanes::along_depth, Lanes::along_depth>(
      tile, slices.left, slices.right, a.width, [&](int64_t d, int i) { return a.at(a_begin + i, d); },
      [&](int64_t d, int j) { return b.at(b_begin + j, d); });
}

template <class T, int kRows, int kColumns>
__device__ void store_tile(const Tile<T, kRows, kColumns>& tile, const AttentionRows<T>& target,
                           const SoftmaxHead<T>& head, int64_t begin, int64_t column, int64_t length,
                           int64_t width) {
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < tile.kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < tile.kColumnsEach; ++j) {
      const int64_t position = begin + tile.first_row() + i, feature = column + tile.first_column() + j;
      if (position < length && feature < width)
        target.row(head.example, position, head.head)[feature] = tile.elements[i][j];
    }
}

// One block for kTokens queries of a head, the last ones, which see the most keys, first; tiles of the result
// along y.
template <class T, int kWidth>
__global__ void forward_kernel(SoftmaxInputs<T> in, int64_t blocks, T* out, T* log_sums) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const Slices<T> slices(dynamic_shared<T>());
  const SoftmaxHead<T> head(in, blockIdx.x / blocks);
  const int64_t begin = (blocks - 1 - blockIdx.x % blocks) * kTokens, column = int64_t{blockIdx.y} * kWidth;
  const T scale = static_cast<T>(in.s.scale);
  Tile<T, kTokens, kWidth> result;
  constexpr int kRowsEach = Scores<T>::kRowsEach, kColumnsEach = Scores<T>::kColumnsEach;
  T maximum[kRowsEach], sum[kRowsEach] = {};
  for (T& row : maximum) row = -kInfinity;
  const int64_t end = head.largest_limit(begin);
  for (int64_t key = 0; key < end; key += kTokens) {
    Scores<T> scores;
    add_row_products(scores, slices, head.q, begin, head.k, key);
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < kRowsEach; ++i) {
      const int64_t query = begin + scores.first_row() + i, limit = head.limit(query);
      T largest = -kInfinity;
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < kColumnsEach; ++j) {
        T& score = scores.elements[i][j];
        score = key + scores.first_column() + j < limit ? scale * score : -kInfinity;
        largest = Larger::of(largest, score);
      }
      largest = Larger::of(maximum[i], row_reduce<Larger>(largest));
      const T shift = largest == -kInfinity ? T{0} : largest, rescale = std::exp(maximum[i] - shift);
      T total = 0;
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < kColumnsEach; ++j) {
        T& score = scores.elements[i][j];
        score = std::exp(score - shift);
        total += score;
        if (in.dropout.threshold > 0 && score > 0)
          score *= head.dropout_factor(in, query, key + scores.first_column() + j);
      }
      maximum[i] = largest;
      sum[i] = rescale * sum[i] + row_reduce<Plus>(total);
      for (T& element : result.elements[i]) element *= rescale;
    }
    scores.store_transposed(slices.weights);
    add_products_of(result, slices.weights, slices.right,
                    [&](int d, int j) { return head.v.at(key + d, column + j); });
  }
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < kRowsEach; ++i) {
    const int64_t query = begin + result.first_row() + i;
    for (T& element : result.elements[i]) element = sum[i] == 0 ? T{0} : element / sum[i];
    if (column == 0 && query < head.queries && threadIdx.x % kTileEdge == 0)
      log_sums[head.index * head.queries + query] = sum[i] == 0 ? T{0} : maximum[i] + std::log(sum[i]);
  }
  store_tile(result, contiguous_rows(out, head.queries, in.s.heads, in.s.value_dim), head, begin, column,
             head.queries, in.s.value_dim);
}

// probability becomes that of the key times what dropout does to it, and gradient, which is g . v, that of q
// . k.
template <class T>
__device__ void score_gradient(const SoftmaxInputs<T>& in, const SoftmaxHead<T>& head, int64_t query,
                               int64_t key, T log_sum, T delta, T& probability, T& gradient) {
  if (key >= head.limit(query)) {
    probability = gradient = 0;
    return;
  }
  const T scale = static_cast<T>(in.s.scale), p = std::exp(scale * probability - log_sum);
  const T factor = in.dropout.threshold > 0 ? head.dropout_factor(in, query, key) : T{1};
  probability = p * factor;
  gradient = p * (gradient * factor - delta) * scale;
}

// One block for kTokens queries of a head; tiles of the gradient of q along y.
template <class T, int kWidth>
__global__ void query_gradient_kernel(SoftmaxInputs<T> in, int64_t blocks, T* gq) {
  const Slices<T> slices(dynamic_shared<T>());
  const SoftmaxHead<T> head(in, blockIdx.x / blocks);
  const int64_t begin = (blocks - 1 - blockIdx.x % blocks) * kTokens, column = int64_t{blockIdx.y} * kWidth;
  Tile<T, kTokens, kWidth> result;
  T log_sums[Scores<T>::kRowsEach] = {}, deltas[Scores<T>::kRowsEach] = {};
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Scores<T>::kRowsEach; ++i) {
    const int64_t query = begin + Scores<T>::first_row() + i, at = head.index * head.queries + query;
    if (query >= head.queries) continue;
    log_sums[i] = in.log_sums[at];
    deltas[i] = in.deltas[at];
  }
  const int64_t end = head.largest_limit(begin);
  for (int64_t key = 0; key < end; key += kTokens) {
    Scores<T> scores, gradients;
    add_row_products(scores, slices, head.q, begin, head.k, key);
    add_row_products(gradients, slices, head.g, begin, head.v, key);
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < scores.kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < scores.kColumnsEach; ++j)
        score_gradient(in, head, begin + scores.first_row() + i, key + scores.first_column() + j, log_sums[i],
                       deltas[i], scores.elements[i][j], gradients.elements[i][j]);
    gradients.store_transposed(slices.weights);
    add_products_of(result, slices.weights, slices.right,
                    [&](int d, int j) { return head.k.at(key + d, column + j); });
  }
  store_tile(result, contiguous_rows(gq, head.queries, in.s.heads, in.s.dim), head, begin, column,
             head.queries, in.s.dim);
}

// One block for kTokens keys of a head; tiles of the gradients of k and v along y.
template <class T, int kWidth>
__global__ void key_gradient_kernel(SoftmaxInputs<T> in, int64_t blocks, T* gk, T* gv) {
  const Slices<T> slices(dynamic_shared<T>());
  const SoftmaxHead<T> head(in, blockIdx.x / blocks);
  const int64_t begin = blockIdx.x % blocks * kTokens, column = int64_t{blockIdx.y} * kWidth;
  Tile<T, kTokens, kWidth> to_key, to_value;
  const bool wants_key = gk && column < in.s.dim, wants_value = gv && column < in.s.value_dim;
  const int64_t first = head.first_query_seeing(begin) / kTokens * kTokens;
  const int64_t end = begin < head.counted ? head.queries : 0;
  for (int64_t query = first; query < end; query += kTokens) {
    Scores<T> scores, gradients;
    add_row_products(scores, slices, head.k, begin, head.q, query);
    add_row_products(gradients, slices, head.v, begin, head.g, query);
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < scores.kColumnsEach; ++j) {
      const int64_t i = query + scores.first_column() + j, at = head.index * head.queries + i;
      const T log_sum = i < head.queries ? in.log_sums[at] : T{0};
      const T delta = i < head.queries ? in.deltas[at] : T{0};
#pragma unroll(kUnrolled <T>)
      for (int r = 0; r < scores.kRowsEach; ++r)
        score_gradient(in, head, i, begin + scores.first_row() + r, log_sum, delta, scores.elements[r][j],
                       gradients.elements[r][j]);
    }
    if (wants_value) {
      scores.store_transposed(slices.weights);
      add_products_of(to_value, slices.weights, slices.right,
                      [&](int d, int c) { return head.g.at(query + d, column + c); });
      __syncthreads();  // the weights have been read
    }
    if (wants_key) {
      gradients.store_transposed(slices.weights);
      add_products_of(to_key, slices.weights, slices.right,
                      [&](int d, int c) { return head.q.at(query + d, column + c); });
    }
  }
  if (wants_key)
    store_tile(to_key, contiguous_rows(gk, head.keys, in.s.heads, in.s.dim), head, begin, column, head.keys,
               in.s.dim);
  if (wants_value)
    store_tile(to_value, contiguous_rows(gv, head.keys, in.s.heads, in.s.value_dim), head, begin, column,
               head.keys, in.s.value_dim);
}

template <class T>
Launch blocks_of(const SoftmaxAttentionShape& s, int64_t blocks, int64_t tiles) {
  return {dim3(static_cast<unsigned>(s.batch * s.heads * blocks), static_cast<unsigned>(tiles)),
          dim3(kTileThreads), Slices<T>::kBytes};
}

}  // namespace

template <class T>
void softmax_attention_forward(const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                               AttentionRows<const T> k, AttentionRows<const T> v, T* out, T* log_sums) {
  const SoftmaxInputs<T> in{s, q, k, v, {}, DropoutFactors<T>(s.dropout), nullptr, nullptr};
  const int64_t blocks = tiles_of(s.query_length, kTokens);
  with_tile_width<T>(s.value_dim, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    launch(forward_kernel<T, kWidth>, blocks_of<T>(s, blocks, tiles_of(s.value_dim, kWidth)), in, blocks, out,
           log_sums);
  });
}

template <class T>
void softmax_attention_backward(const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                                AttentionRows<const T> k, AttentionRows<const T> v, const T* out,
                                const T* log_sums, AttentionRows<const T> g,
                                AttentionGradients<T> gradients) {
  const Scratch<T> deltas(s.batch * s.heads * s.query_length);
  row_dots<T>(g, contiguous_rows(out, s.query_length, s.heads, s.value_dim), nullptr, T{1}, s.batch,
              s.query_length, s.heads, s.value_dim, deltas.data());
  const SoftmaxInputs<T> in{s, q, k, v, g, DropoutFactors<T>(s.dropout), log_sums, deltas.data()};
  if (gradients.gq)
    with_tile_width<T>(s.dim, [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t blocks = tiles_of(s.query_length, kTokens);
      launch(query_gradient_kernel<T, kWidth>, blocks_of<T>(s, blocks, tiles_of(s.dim, kWidth)), in, blocks,
             gradients.gq);
    });
  if (gradients.gk || gradients.gv)
    with_tile_width<T>(std::max(s.dim, s.value_dim), [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t blocks = tiles_of(s.key_length, kTokens);
      launch(key_gradient_kernel<T, kWidth>,
             blocks_of<T>(s, blocks, tiles_of(std::max(s.dim, s.value_dim), kWidth)), in, blocks,
             gradients.gk, gradients.gv);
    });
}

TAPEFORMER_FLOAT(
    template void softmax_attention_forward(const SoftmaxAttentionShape&, AttentionRows<const float>,
                                            AttentionRows<const float>, AttentionRows<const float>, float*,
                                            float*);
    template void softmax_attention_backward(const SoftmaxAttentionShape&, AttentionRows<const float>,
                                             AttentionRows<const float>, AttentionRows<const float>,
                                             const float*, const float*, AttentionRows<const float>,
                                             AttentionGradients<float>);)
TAPEFORMER_DOUBLE(
    template void softmax_attention_forward(const SoftmaxAttentionShape&, AttentionRows<const double>,
                                            AttentionRows<const double>, AttentionRows<const double>, double*,
                                            double*);
    template void softmax_attention_backward(const SoftmaxAttentionShape&, AttentionRows<const double>,
                                             AttentionRows<const double>, AttentionRows<const double>,
                                             const double*, const double*, AttentionRows<const double>,
                                             AttentionGradients<double>);)

}  // namespace tapeformer::cuda
