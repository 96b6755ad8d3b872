#include "ops/kernels/linear_attention.h"

#include <algorithm>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/linear_attention_head.h"
#include "ops/cuda/tensor_tiles.h"

// Linear attention in chunks of kTokens tokens. Each block scans a segment of a head chunk by chunk and keeps
// a state in shared memory, or in global memory if the state is large. A head has several segments if there
// are few heads. For each chunk, the block computes results from the state and from the products of the
// tokens of the chunk, and then adds the chunk to the state. The initial state of a segment is the sum of the
// states of other segments, which segment_state_kernel computes. Without a causal mask, all segments read the
// sum of all states, and no chunk is added.
//
// Legend: q, k are phi(q), phi(k), (length, dim); d is the denominator of out, (length,);
//   dn = g / d, the gradient of the numerator of out, (length, value_dim);
//   dd = -(g . out) / d, the gradient of the denominator of out, (length,).
// A state is a (dim, value_dim + kStatePadding) matrix, which contains a (dim, value_dim) matrix and, in
// column value_dim, a (dim,) vector:
//   forward  sum k v^T and sum k
//   reverse  sum q dn^T and sum dd q, from the last chunk to the first
namespace tapeformer::cuda {
namespace {

// The output that read_chunk() computes.
enum class Output { result, query_gradient, key_gradient, value_gradient };
// The outputs of a scan: the result, from forward states; dd and the gradient of the queries, from forward
// states; or the gradients of the keys and values, from reverse states.
enum class Scan { result, query_gradient, key_value_gradients };

// Adds tokens [begin, end) of a head to the state, or overwrites the state if `is_first`. All threads of the
// block call the function, and synchronise before they read the state.
template <class Tiles, bool kReverse, int kWidth, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__device__ void add_tokens(const typename Tiles::Memory& memory, const LinearHead<S>& head, int64_t begin,
                           int64_t end, bool is_first, T* state) {
  HeadRows<S> features = kReverse ? head.queries : head.keys, values = kReverse ? head.dn : head.values;
  const int64_t stride = values.width + kStatePadding;
  features.count = values.count = end < features.count ? end : features.count;
  const int thread = static_cast<int>(threadIdx.x);
  const auto set = [&](int64_t row, int64_t column, T sum) {
    T& target = state[row * stride + column];
    target = is_first ? sum : target + sum;
  };
  for (int64_t row = 0; row < features.width; row += kWidth)
    for (int64_t column = 0; column < values.width; column += kWidth) {
      typename Tiles::template Tile<kWidth, kWidth> tile;
      // Sum for element row + thread of the vector of the state. Only the first kWidth threads compute it,
      // for column 0.
      T sum = 0;
      add_products<Lanes::along_tile, Lanes::along_tile>(
          tile, memory, features.count - begin, rows_operand<Lanes::along_tile>(features, begin, row),
          rows_operand<Lanes::along_tile>(values, begin, column),
          [&](int64_t first, int count, auto&& element) {
            if (column > 0 || thread >= kWidth) return;
            for (int t = 0; t < count; ++t) {
              const T feature = element(t, thread);
              sum += kReverse ? feature * head.dd[begin + first + t] : feature;
            }
          });
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < tile.kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
        for (int j = 0; j < tile.kColumnsEach; ++j)
          if (row + tile.row(i) < features.width && column + tile.column(j) < values.width)
            set(row + tile.row(i), column + tile.column(j), tile.elements[i][j]);
      if (column == 0 && thread < kWidth && row + thread < features.width)
        set(row + thread, values.width, sum);
    }
}

// Computes the states of the segments. Each block computes one state.
template <class Tiles, bool kReverse, int kWidth, bool kPacked, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void segment_state_kernel(LinearInputs<S> in, LinearSegments<T> segments, T* states) {
  const typename Tiles::Memory memory;
  const int64_t begin = blockIdx.x % segments.count * segments.tokens;
  add_tokens<Tiles, kReverse, kWidth>(memory, LinearHead<S>(in, blockIdx.x / segments.count, kPacked), begin,
                                      begin + segments.tokens, true,
                                      states + int64_t{blockIdx.x} * in.state_size());
}

// For the gradients of queries and keys, adds dd to the products of a chunk. Sets the products that the
// causal mask excludes to 0. For Output::result, computes the sum of each row of products. row_dd contains dd
// of the rows of the thread.
template <Output kOutput, class Products, class S, class T = Compute<S>>
__device__ void finish_products(Products& products, const LinearHead<S>& head, int64_t begin,
                                const T (&row_dd)[Products::kRowsEach],
                                T (&denominators)[Products::kRowsEach]) {
  constexpr bool kReverse = kOutput == Output::key_gradient || kOutput == Output::value_gradient;
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Products::kRowsEach; ++i) {
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < Products::kColumnsEach; ++j) {
      const int row = Products::row(i), other = Products::column(j);
      T& product = products.elements[i][j];
      if constexpr (kOutput == Output::query_gradient) product += row_dd[i];
      if constexpr (kOutput == Output::key_gradient)
        product += begin + other < head.queries.count ? head.dd[begin + other] : T{0};
      if (kReverse ? other < row : other > row) product = 0;
      if constexpr (kOutput == Output::result) denominators[i] += product;
    }
    if constexpr (kOutput == Output::result)
      denominators[i] = Products::template row_reduce<Plus>(denominators[i]);
  }
}

// Calls f(column, values) for each pair of adjacent elements that the thread holds in its row i of a tile.
// `values` contains the elements times `factor`. The first column of the tile is `first`. The column of the
// second element may be equal to the width; the element is then invalid.
template <class Tile, class T, class F>
__device__ void for_pairs(const Tile& tile, int i, int64_t first, int64_t width, T factor, F&& f) {
#pragma unroll(kUnrolled <T>)
  for (int j = 0; j < Tile::kColumnsEach; j += 2) {
    T pair[2] = {factor * tile.elements[i][j], factor * tile.elements[i][j + 1]};
    if (first + Tile::column(j) < width) f(first + Tile::column(j), pair);
  }
}

// Computes an output for the tokens of a chunk, from the state and the tokens of the chunk. Row i of the
// output is Σ_j (rows_i . columns_j) values_j. For the gradients of queries and keys, dd is added to the dot
// products. For Output::result, divides by the denominators and writes their inverses unless
// `inverse` is null. Calls store(i, position, feature, values) for each pair of elements in row i of the
// thread.
template <class Tiles, Output kOutput, int kWidth, int kRowsEach, class S, class Store>
__device__ void read_chunk(const typename Tiles::Memory& memory, const LinearInputs<S>& in,
                           const LinearHead<S>& head, const HeadRows<S>& rows, const HeadRows<S>& columns,
                           const HeadRows<S>& values, int64_t begin, const typename Tiles::Value* state,
                           const typename Tiles::Value (&row_dd)[kRowsEach], typename Tiles::Value* inverse,
                           Store store) {
  using T = typename Tiles::Value;
  constexpr bool kReverse = kOutput == Output::key_gradient || kOutput == Output::value_gradient;
  constexpr bool kToFeatures = kOutput == Output::query_gradient || kOutput == Output::key_gradient;
  using Sums = typename Tiles::template Tile<kTokens, kWidth>;
  __shared__ T state_denominators[kTokens];  // terms of the denominators from the state
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t length = kReverse ? in.s.key_length : in.s.query_length, stride = in.state_stride();
  const int64_t width = kToFeatures ? in.s.dim : in.s.value_dim;
  typename Tiles::template Tile<kTokens, kTokens> products;
  T denominators[kRowsEach] = {};
  if (in.s.causal) {
    add_products<Lanes::along_depth, Lanes::along_depth>(products, memory, rows.width,
                                                         rows_operand<Lanes::along_depth>(rows, begin, 0),
                                                         rows_operand<Lanes::along_depth>(columns, begin, 0));
    finish_products<kOutput>(products, head, begin, row_dd, denominators);
  }
  for (int64_t column = 0; column < width; column += kWidth) {
    Sums sums;
    if (in.s.causal)
      add_products_of(sums, products, memory, rows_operand<Lanes::along_tile>(values, begin, column));
    // The first column tile computes the denominators.
    const bool has_denominators = kOutput == Output::result && column == 0;
    T denominator = static_cast<T>(in.s.eps);  // term of row `thread` from the state, plus eps
    add_products<Lanes::along_depth, kToFeatures ? Lanes::along_depth : Lanes::along_tile>(
        sums, memory, rows.width, rows_operand<Lanes::along_depth>(rows, begin, 0),
        [&](int64_t d, int j) {
          if constexpr (kToFeatures)
            return d < in.s.value_dim && column + j < in.s.dim ? state[(column + j) * stride + d] : T{0};
          else
            return d < in.s.dim && column + j < in.s.value_dim ? state[d * stride + column + j] : T{0};
        },
        [&](int64_t first, int count, auto&& element) {
          if (has_denominators && thread < kTokens)
            for (int d = 0; d < count; ++d)
              denominator += element(d, thread) * state[(first + d) * stride + in.s.value_dim];
        });
    if (has_denominators) {
      if (thread < kTokens) state_denominators[thread] = denominator;
      __syncthreads();
    }
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < kRowsEach; ++i) {
      const int64_t position = begin + Sums::row(i);
      if (position >= length) continue;
      if (has_denominators) {
        denominators[i] = 1 / (state_denominators[Sums::row(i)] + denominators[i]);
        if (inverse && Sums::first_of_row()) inverse[head.offset + position] = denominators[i];
      }
      for_pairs(sums, i, column, width, kOutput == Output::result ? denominators[i] : T{1},
                [&](int64_t feature, T(&pair)[2]) { store(i, position, feature, pair); });
    }
  }
}

// The operations of a scan on one chunk of a head.
template <class Tiles, int kWidth>
struct ChunkScan {
  using T = typename Tiles::Value;
  using S = typename Tiles::Stored;
  static constexpr int kRowsEach = Tiles::template Tile<kTokens, kWidth>::kRowsEach;

  const typename Tiles::Memory& memory;
  const LinearInputs<S>& in;
  const LinearTargets<S>& targets;
  const LinearHead<S>& head;
  const T* state;

  __device__ void store_result(int64_t begin) const {
    const T none[kRowsEach] = {};
    read_chunk<Tiles, Output::result, kWidth>(
        memory, in, head, head.queries, head.keys, head.values, begin, state, none, targets.inverse,
        [&](int, int64_t position, int64_t feature, const T(&values)[2]) {
          store_pair(targets.out.row(head.example, position, head.head), feature, in.s.value_dim, values);
        });
  }

  // Computes dd and the gradients of the queries. The gradient of a query sums (dn . v + dd) k over all keys.
  // The common part of the values cancels in this sum, so if out, dn and states were rounded to bfloat16, the
  // error would grow with the length. Therefore bfloat16 tensors use operands of two bfloat16 parts, also to
  // compute the result again.
  __device__ void store_query_gradient(int64_t begin) const {
    using Sums = typename Tiles::template Tile<kTokens, kWidth>;
    T dd[kRowsEach] = {};
    const auto add_terms = [&](int i, int64_t position, int64_t feature, const T(&values)[2]) {
      T gradients[2];
      head.dn.at_pair(position, feature, gradients);
      dd[i] -= values[0] * gradients[0] + values[1] * gradients[1];
    };
    if constexpr (std::is_same_v<S, BFloat16>)
      read_chunk<Tiles, Output::result, kWidth>(memory, in, head, head.queries, head.keys, head.values, begin,
                                                state, dd, nullptr, add_terms);
    else
      for (int i = 0; i < kRowsEach; ++i)
        for (int64_t feature = Sums::column(0); feature < in.s.value_dim; feature += kWidth)
          for (int j = 0; j < Sums::kColumnsEach; ++j) {
            const int64_t position = begin + Sums::row(i), at = feature + j;
            if (position < in.s.query_length && at < in.s.value_dim)
              dd[i] -= in.out.row(head.example, position, head.head)[at] * head.dn.at(position, at);
          }
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < kRowsEach; ++i) {
      dd[i] = Sums::template row_reduce<Plus>(dd[i]);
      const int64_t position = begin + Sums::row(i);
      if (position < in.s.query_length && Sums::first_of_row()) in.dd[head.offset + position] = dd[i];
    }
    if (!targets.gq.data) return;
    read_chunk<Tiles, Output::query_gradient, kWidth>(
        memory, in, head, head.dn, head.values, head.keys, begin, state, dd, nullptr,
        [&](int i, int64_t position, int64_t feature, T(&values)[2]) {
          store_feature_gradient(targets.gq, head.queries, position, feature, values, dd[i]);
        });
  }

  __device__ void store_key_value_gradients(int64_t begin) const {
    const T none[kRowsEach] = {};
    if (targets.gk.data)
      read_chunk<Tiles, Output::key_gradient, kWidth>(
          memory, in, head, head.values, head.dn, head.queries, begin, state, none, nullptr,
          [&](int, int64_t position, int64_t feature, T(&values)[2]) {
            store_feature_gradient(targets.gk, head.keys, position, feature, values, T{1});
          });
    if (targets.gv.data)
      read_chunk<Tiles, Output::value_gradient, kWidth>(
          memory, in, head, head.keys, head.queries, head.dn, begin, state, none, nullptr,
          [&](int, int64_t position, int64_t feature, const T(&values)[2]) {
            store_pair(targets.gv.row(head.example, position, head.head), feature, in.s.value_dim, values);
          });
  }

 private:
  // Adds the gradient that comes from the denominator, `factor` times the vector of the state, to a pair of
  // gradients. Multiplies the pair by the derivative of the feature map and writes it. Gradients of masked
  // keys are zero.
  __device__ void store_feature_gradient(const AttentionRows<S>& target, const HeadRows<S>& features,
                                         int64_t position, int64_t feature, T (&values)[2], T factor) const {
    T mapped[2];
    features.at_pair(position, feature, mapped);
    for (int v = 0; v < 2; ++v) {
      if (feature + v >= in.s.dim) continue;
      values[v] += factor * state[(feature + v) * in.state_stride() + in.s.value_dim];
      values[v] = position < features.count ? values[v] * feature_derivative(features.map, mapped[v]) : T{0};
    }
    store_pair(target.row(head.example, position, head.head), feature, in.s.dim, values);
  }
};

// Returns the minimum number of resident blocks of a multiprocessor: the largest number without register
// spills in bfloat16, and with at most 32 bytes in float32. The emulation does not call the function.
template <class Tiles, Scan kScan, int kWidth>
[[maybe_unused]] constexpr int scan_blocks() {
  if (Tiles::kThreads > kTensorThreads) return 2;
  if (kWidth > 32) return kScan == Scan::result ? 3 : 2;
  return kScan == Scan::query_gradient ? 3 : 4;
}

// Scans the segments of the heads. Each block scans one segment.
template <class Tiles, Scan kScan, int kWidth, bool kPacked, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void __launch_bounds__(Tiles::kThreads, scan_blocks<Tiles, kScan, kWidth>())
    segment_scan_kernel(LinearInputs<S> in, LinearSegments<T> segments, LinearTargets<S> targets) {
  constexpr bool kReverse = kScan == Scan::key_value_gradients;
  const typename Tiles::Memory memory;
  const unsigned index = blockIdx.x / segments.count, segment = blockIdx.x % segments.count;
  const LinearHead<S> head(in, index, kPacked);
  const int64_t size = in.state_size(), count = segments.state_count;
  T* const state = segments.workspace ? segments.workspace + blockIdx.x * size
                                      : dynamic_shared<T>() + Tiles::Memory::kBytes / sizeof(T);
  const int64_t first = in.s.causal && kReverse ? segment + 1 : 0;
  const int64_t last = in.s.causal && !kReverse && segment < count ? segment : count;
  for (int64_t e = threadIdx.x; e < size; e += blockDim.x) {
    T sum = 0;
    for (int64_t c = first; c < last; ++c) sum += segments.states[(index * count + c) * size + e];
    state[e] = sum;
  }
  const ChunkScan<Tiles, kWidth> scan{memory, in, targets, head, state};
  const int64_t length = kReverse ? in.s.key_length : in.s.query_length, begin = segment * segments.tokens;
  const int64_t end = begin + segments.tokens < length ? begin + segments.tokens : length;
  const int64_t chunks = (end - begin + kTokens - 1) / kTokens;
  for (int64_t c = 0; c < chunks; ++c) {
    const int64_t chunk = begin + (kReverse ? chunks - 1 - c : c) * kTokens;
    if constexpr (kScan == Scan::result)
      scan.store_result(chunk);
    else if constexpr (kScan == Scan::query_gradient)
      scan.store_query_gradient(chunk);
    else
      scan.store_key_value_gradients(chunk);
    if (!in.s.causal || c + 1 == chunks) continue;
    __syncthreads();  // all threads have read the state
    add_tokens<Tiles, kReverse, kWidth>(memory, head, chunk, chunk + kTokens, false, state);
    __syncthreads();
  }
}

// Returns `shape` with its memory traffic and its operations. `features` and `values` are the numbers of
// accessed tensors of width dim and value_dim, and `states` is the number of accessed states. `scalars` and
// `multiply_adds` are the numbers of other accessed elements and of multiply-adds per token and head.
template <class Tiles, class S>
Launch with_work(const Launch& shape, const LinearInputs<S>& in, int64_t length, int64_t features,
                 int64_t values, int64_t scalars, int64_t states, int64_t multiply_adds) {
  constexpr int kProducts = std::is_same_v<Tiles, SplitTensorTiles> ? 3 : 1;  // products of operand parts
  const int64_t tokens = in.s.batch * in.s.heads * length;
  const int64_t elements = tokens * (features * in.s.dim + values * in.s.value_dim);
  return shape
      .with_bytes(elements * static_cast<int64_t>(sizeof(S)) +
                  (tokens * scalars + states * in.state_size()) * static_cast<int64_t>(sizeof(Compute<S>)))
      .template with_flop<S>(2.0 * kProducts * static_cast<double>(tokens * multiply_adds));
}

// Returns the segments of a head with `length` tokens, without states. There are enough segments to occupy a
// large device, but at most kMaxSegments, because each block sums the states of other segments. The number
// depends only on the shape, so results are equal on all devices.
template <class T>
LinearSegments<T> segments_of(const LinearAttentionShape& s, int64_t length) {
  constexpr int64_t kBlocks = 512;  // number of blocks that occupy a large device
  constexpr int64_t kMaxSegments = 16;
  const int64_t chunks = std::max<int64_t>(tiles_of(length, kTokens), 1);
  const int64_t wanted = kBlocks / std::max<int64_t>(s.batch * s.heads, 1);
  const int64_t tokens = tiles_of(chunks, std::clamp<int64_t>(wanted, 1, kMaxSegments)) * kTokens;
  return {.count = static_cast<unsigned>(std::max<int64_t>(tiles_of(length, tokens), 1)), .tokens = tokens};
}

// Calls f(columns, packed) with the number of columns of result tiles and whether all rows can be read with
// 16-byte loads, as compile-time constants. Other rows use one width in bfloat16 to save compile time.
template <class S, class F>
void with_width_and_packs(const LinearInputs<S>& in, F&& f) {
  const LinearAttentionShape& s = in.s;
  constexpr bool kHasPacks = std::is_same_v<S, BFloat16>;
  if constexpr (kHasPacks)
    if (!has_packs(in.q, s.dim) || !has_packs(in.k, s.dim) || !has_packs(in.v, s.value_dim) ||
        !has_packs(in.g, s.value_dim))
      return f(std::integral_constant<int, 64>{}, std::false_type{});
  with_tile_width<Compute<S>>(std::max(s.dim, s.value_dim),
                              [&](auto columns) { f(columns, std::bool_constant<kHasPacks>{}); });
}

// Launches a scan. If the scan reads the states of segments, launches segment_state_kernel before it.
template <class Tiles, Scan kScan, class T = typename Tiles::Value, class S = typename Tiles::Stored>
void scan_segments(const LinearInputs<S>& in, const LinearTargets<S>& targets) {
  constexpr bool kReverse = kScan == Scan::key_value_gradients;
  constexpr size_t kMaxShared = 24 << 10;  // bytes of a state in shared memory
  const LinearAttentionShape& s = in.s;
  const int64_t length = kReverse ? s.key_length : s.query_length, heads = s.batch * s.heads;
  // Number of tokens that the states of a head sum.
  const int64_t summed = kReverse ? s.query_length : s.key_length;
  LinearSegments<T> segments = segments_of<T>(s, length);
  const LinearSegments<T> sums = segments_of<T>(s, summed);
  if (heads == 0 || length == 0) return;
  if (summed > 0 && (!s.causal || sums.count > 1)) segments.state_count = sums.count;
  const Scratch<T> states(heads * segments.state_count * in.state_size());
  segments.states = states.data();
  const size_t state_bytes = static_cast<size_t>(in.state_size()) * sizeof(T);
  const bool is_shared = state_bytes <= kMaxShared;
  const Scratch<T> workspace(is_shared ? 0 : heads * segments.count * in.state_size());
  segments.workspace = workspace.data();
  const int64_t causal = s.causal ? 1 : 0, state_products = s.dim * s.value_dim;
  const int64_t read_products = state_products + causal * kTokens * (s.dim + s.value_dim);
  // Numbers of read_chunk() calls per chunk, and of accessed tensors of each width. With a causal mask, the
  // scan accesses one more tensor of each width.
  const bool recomputes = kScan == Scan::query_gradient && std::is_same_v<S, BFloat16>;
  const int64_t reads = kScan == Scan::result ? 1 : kScan == Scan::query_gradient && !recomputes ? 1 : 2;
  const int64_t features = kScan == Scan::result ? 1 : 2;
  const int64_t values = kScan == Scan::result || recomputes ? 1 : 2;
  with_width_and_packs(in, [&](auto columns, auto packed) {
    constexpr int kWidth = decltype(columns)::value;
    constexpr bool kPacked = decltype(packed)::value;
    if (segments.state_count > 0) {
      const int64_t blocks = heads * sums.count;
      launch(segment_state_kernel<Tiles, kReverse, kWidth, kPacked>,
             with_work<Tiles, S>(over_rows(blocks, Tiles::kThreads, Tiles::Memory::kSliceBytes), in, summed,
                                 1, 1, kReverse ? 2 : 0, blocks, state_products),
             in, sums, states.data());
    }
    const int64_t blocks = heads * segments.count;
    const Launch shape =
        over_rows(blocks, Tiles::kThreads, Tiles::Memory::kBytes + (is_shared ? state_bytes : 0));
    launch(segment_scan_kernel<Tiles, kScan, kWidth, kPacked>,
           with_work<Tiles, S>(shape, in, length, features + causal, values + causal,
                               kScan == Scan::result ? 1 : 2, blocks * segments.state_count / (1 + causal),
                               reads * read_products + causal * state_products),
           in, segments, targets);
  });
}

}  // namespace

template <class S>
void linear_attention_forward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                              AttentionRows<const S> k, AttentionRows<const S> v, S* out,
                              Compute<S>* inverse_denominators) {
  scan_segments<TilesFor<S>, Scan::result>(
      LinearInputs<S>{s, q, k, v, {}, {}, nullptr, nullptr},
      {.out = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim),
       .inverse = inverse_denominators});
}

template <class S>
void linear_attention_backward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v, const S* out,
                               const Compute<S>* inverse_denominators, AttentionRows<const S> g,
                               AttentionGradients<S> gradients) {
  // ChunkScan::store_query_gradient() explains the use of SplitTensorTiles.
  using Exact = std::conditional_t<std::is_same_v<S, BFloat16>, SplitTensorTiles, PlainTiles<S>>;
  const Scratch<Compute<S>> dd(s.batch * s.heads * s.query_length);
  const LinearInputs<S> in{s,
                           q,
                           k,
                           v,
                           g,
                           make_contiguous_rows(out, s.query_length, s.heads, s.value_dim),
                           inverse_denominators,
                           dd.data()};
  scan_segments<Exact, Scan::query_gradient>(in, {.gq = gradients.gq});
  if (!gradients.gk.data && !gradients.gv.data) return;
  scan_segments<TilesFor<S>, Scan::key_value_gradients>(in, {.gk = gradients.gk, .gv = gradients.gv});
}

template <class T>
struct LinearAttentionKernels {
  inline static const Instances all{&linear_attention_forward<T>, &linear_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct LinearAttentionKernels<float>;
                 template struct LinearAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LinearAttentionKernels<double>;)

}  // namespace tapeformer::cuda
