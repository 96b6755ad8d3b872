#include "ops/kernels/linear_attention.h"

#include <algorithm>
#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/linear_attention_tensor_cores.h"

// Linear attention, computed in chunks of kTileTokens tokens. Sequences are divided into segments, so that a
// few heads are enough to occupy the device. Each thread block scans the chunks of one segment of a head.
//
// For each chunk, a thread block computes outputs from the state and from the tokens of the chunk, and then
// adds the tokens of the chunk to the state. The initial state of a segment is the sum of the states of the
// segments before it (forward) or after it (reverse). Without a causal mask, the state is constant, and is
// the sum of the states of all segments. A separate kernel computes the states of the segments.
//
// The kernels of this file keep the state in shared memory, or in global memory if the state is large. The
// kernels of linear_attention_tensor_cores.h keep the state in registers.
//
// Legend:
//   q, k  phi(q) and phi(k), (length, dim)
//   d     denominator of out, (length,); 1 if `normalized` is false
//   dn    g / d, the gradient of the numerator of out, (length, value_dim)
//   dd    -(g . out) / d, the gradient of d, (length,); 0 if `normalized` is false
// A state is a (dim, value_dim + kExtraStateColumns) array. Columns [0, value_dim) hold a matrix, and column
// value_dim holds a vector:
//   forward  the matrix sum k v^T and the vector sum k
//   reverse  the matrix sum q dn^T and the vector sum dd q, from the last chunk to the first
namespace tapeformer::cuda {
namespace {

// The tensor that compute_chunk_output() computes.
enum class Output { result, query_gradient, key_gradient, value_gradient };
// Adds tokens [begin, end) of a head to the state, or overwrites the state with their sum if is_first is
// true. All threads of the block must call this function, and must synchronise before they read the state.
template <class Tiles, bool kIsReverse, int kWidth, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__device__ void add_tokens_to_state(const typename Tiles::Memory& memory, const LinearAttentionHead<S>& head,
                                    int64_t begin, int64_t end, bool is_first, T* state) {
  HeadRows<S> features = kIsReverse ? head.queries : head.keys, values = kIsReverse ? head.dn : head.values;
  const int64_t stride = values.width + kExtraStateColumns;
  features.count = values.count = end < features.count ? end : features.count;
  const int thread = static_cast<int>(threadIdx.x);
  const auto store_sum = [&](int64_t row, int64_t column, T sum) {
    T& target = state[row * stride + column];
    target = is_first ? sum : target + sum;
  };
  for (int64_t row = 0; row < features.width; row += kWidth)
    for (int64_t column = 0; column < values.width; column += kWidth) {
      typename Tiles::template Tile<kWidth, kWidth> tile;
      // The thread adds `sum` to element row + thread of the vector of the state. This vector is independent
      // of `column`, so `sum` is computed only for column 0.
      T sum = 0;
      add_products<kAlongTile, kAlongTile>(
          tile, memory, features.count - begin, make_operand<kAlongTile>(features, begin, row),
          make_operand<kAlongTile>(values, begin, column), [&](int64_t first, int count, auto&& element) {
            if (column > 0 || thread >= kWidth) return;
            for (int t = 0; t < count; ++t) {
              const T feature = element(t, thread);
              sum += kIsReverse ? feature * head.dd[begin + first + t] : feature;
            }
          });
#pragma unroll(kUnrollFactor <T>)
      for (int i = 0; i < tile.kRowsPerThread; ++i)
#pragma unroll(kUnrollFactor <T>)
        for (int j = 0; j < tile.kColumnsPerThread; ++j)
          if (row + tile.row(i) < features.width && column + tile.column(j) < values.width)
            store_sum(row + tile.row(i), column + tile.column(j), tile.elements[i][j]);
      if (column == 0 && thread < kWidth && row + thread < features.width)
        store_sum(row + thread, values.width, sum);
    }
}

// Computes `states` (batch, heads, segments, state_size()). Each block computes the state of one segment.
template <class Tiles, bool kIsReverse, int kWidth, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void segment_state_kernel(LinearAttentionInputs<S> in, LinearAttentionSegments<T> segments,
                                     T* states) {
  const typename Tiles::Memory memory;
  const int64_t begin = blockIdx.x % segments.segments_per_head * segments.tokens_per_segment;
  add_tokens_to_state<Tiles, kIsReverse, kWidth>(
      memory, LinearAttentionHead<S>(in, blockIdx.x / segments.segments_per_head), begin,
      begin + segments.tokens_per_segment, true, states + int64_t{blockIdx.x} * in.state_size());
}

// Modifies `products`, the dot products between the tokens of the chunk that begins at token `begin`:
// 1. If kOutput is query_gradient or key_gradient, adds dd of the query, which is the gradient of the
//    denominator, to each product. For query_gradient, row_dd contains dd for the rows of the calling thread.
// 2. Sets the products that the causal mask excludes to 0.
// 3. If kOutput is result, adds the sum of each row to `denominators`, which must be 0 on entry.
template <Output kOutput, class Products, class S, class T = Compute<S>>
__device__ void finish_products(Products& products, const LinearAttentionHead<S>& head, int64_t begin,
                                const T (&row_dd)[Products::kRowsPerThread],
                                T (&denominators)[Products::kRowsPerThread]) {
  constexpr bool kIsReverse = kOutput == Output::key_gradient || kOutput == Output::value_gradient;
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Products::kRowsPerThread; ++i) {
#pragma unroll(kUnrollFactor <T>)
    for (int j = 0; j < Products::kColumnsPerThread; ++j) {
      const int row = Products::row(i), column = Products::column(j);
      T& product = products.elements[i][j];
      if constexpr (kOutput == Output::query_gradient) product += row_dd[i];
      if constexpr (kOutput == Output::key_gradient)
        product += begin + column < head.queries.count ? head.dd[begin + column] : T{0};
      if (kIsReverse ? column < row : column > row) product = 0;
      if constexpr (kOutput == Output::result) denominators[i] += product;
    }
    if constexpr (kOutput == Output::result)
      denominators[i] = Products::template reduce_row<Plus>(denominators[i]);
  }
}

// Calls f(column, values) for each pair of adjacent elements in row i of the calling thread, where `values`
// is the pair multiplied by `factor`. The tile begins at column `first` of the tensor. Pairs at or after
// column `width` are skipped. If `width` is odd, the second element of the last pair is invalid.
template <class Tile, class T, class F>
__device__ void for_each_pair(const Tile& tile, int i, int64_t first, int64_t width, T factor, F&& f) {
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Tile::kColumnsPerThread; j += 2) {
    T pair[2] = {factor * tile.elements[i][j], factor * tile.elements[i][j + 1]};
    if (first + Tile::column(j) < width) f(first + Tile::column(j), pair);
  }
}

// Computes one output tensor for the tokens of a chunk. Row i of the output is
//   sum over j of (rows[i] . columns[j]) * values[j]
// where j are the tokens that the mask allows. With a causal mask, dot products are computed for the tokens j
// in the chunk, and `state` is used for all other tokens. Without a causal mask, `state` is used for all
// tokens. Depending on kOutput:
//   query_gradient, key_gradient   dd of the query is added to each dot product in the chunk.
//   result   Row i is divided by its denominator. If `inverse` is not null, it receives 1 / denominator.
// Calls store(i, position, feature, values), where `values` contains elements `feature` and `feature` + 1 of
// the output of token `position`. The argument i is the index of the row in the arrays of the calling thread.
template <class Tiles, Output kOutput, int kWidth, int kRowsPerThread, class S, class Store>
__device__ void compute_chunk_output(const typename Tiles::Memory& memory, const LinearAttentionInputs<S>& in,
                                     const LinearAttentionHead<S>& head, const HeadRows<S>& rows,
                                     const HeadRows<S>& columns, const HeadRows<S>& values, int64_t begin,
                                     const typename Tiles::Value* state,
                                     const typename Tiles::Value (&row_dd)[kRowsPerThread],
                                     typename Tiles::Value* inverse, Store store) {
  using T = typename Tiles::Value;
  constexpr bool kIsReverse = kOutput == Output::key_gradient || kOutput == Output::value_gradient;
  constexpr bool kIsFeatureGradient = kOutput == Output::query_gradient || kOutput == Output::key_gradient;
  using Sums = typename Tiles::template Tile<kTileTokens, kWidth>;
  __shared__ T state_denominators[kTileTokens];  // eps plus the part of each denominator from `state`
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t length = kIsReverse ? in.s.key_length : in.s.query_length, stride = in.state_stride();
  const int64_t width = kIsFeatureGradient ? in.s.dim : in.s.value_dim;
  typename Tiles::template Tile<kTileTokens, kTileTokens> products;
  T denominators[kRowsPerThread] = {};
  if (in.s.causal) {
    add_products<kAlongDepth, kAlongDepth>(products, memory, rows.width,
                                           make_operand<kAlongDepth>(rows, begin, 0),
                                           make_operand<kAlongDepth>(columns, begin, 0));
    finish_products<kOutput>(products, head, begin, row_dd, denominators);
  }
  for (int64_t column = 0; column < width; column += kWidth) {
    Sums sums;
    if (in.s.causal)
      add_tile_product(sums, products, memory, make_operand<kAlongTile>(values, begin, column));
    // The denominators do not depend on `column`, so they are computed only for column 0.
    const bool needs_denominators = kOutput == Output::result && column == 0;
    T denominator = static_cast<T>(in.s.eps);
    add_products<kAlongDepth, kIsFeatureGradient ? kAlongDepth : kAlongTile>(
        sums, memory, rows.width, make_operand<kAlongDepth>(rows, begin, 0),
        [&](int64_t d, int j) {
          if constexpr (kIsFeatureGradient)
            return d < in.s.value_dim && column + j < in.s.dim ? state[(column + j) * stride + d] : T{0};
          else
            return d < in.s.dim && column + j < in.s.value_dim ? state[d * stride + column + j] : T{0};
        },
        [&](int64_t first, int count, auto&& element) {
          if (needs_denominators && thread < kTileTokens)
            for (int d = 0; d < count; ++d)
              denominator += element(d, thread) * state[(first + d) * stride + in.s.value_dim];
        });
    if (needs_denominators) {
      if (thread < kTileTokens) state_denominators[thread] = denominator;
      __syncthreads();
    }
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int64_t position = begin + Sums::row(i);
      if (position >= length) continue;
      if (needs_denominators) {
        denominators[i] = in.s.normalized ? 1 / (state_denominators[Sums::row(i)] + denominators[i]) : T{1};
        if (inverse && Sums::is_row_leader()) inverse[head.row_offset + position] = denominators[i];
      }
      for_each_pair(sums, i, column, width, kOutput == Output::result ? denominators[i] : T{1},
                    [&](int64_t feature, T(&pair)[2]) { store(i, position, feature, pair); });
    }
  }
}

// The operations of a scan on one chunk of a head. Each parameter `begin` is the first token of the chunk.
template <class Tiles, int kWidth>
struct ChunkScan {
  using T = typename Tiles::Value;
  using S = typename Tiles::Stored;
  static constexpr int kRowsPerThread = Tiles::template Tile<kTileTokens, kWidth>::kRowsPerThread;

  const typename Tiles::Memory& memory;
  const LinearAttentionInputs<S>& in;
  const LinearAttentionOutputs<S>& outputs;
  const LinearAttentionHead<S>& head;
  const T* state;

  __device__ void store_result(int64_t begin) const {
    const T none[kRowsPerThread] = {};
    compute_chunk_output<Tiles, Output::result, kWidth>(
        memory, in, head, head.queries, head.keys, head.values, begin, state, none,
        outputs.inverse_denominators, [&](int, int64_t position, int64_t feature, const T(&values)[2]) {
          store_pair(outputs.out.row(head.example, position, head.head), feature, in.s.value_dim, values);
        });
  }

  // Computes dd and the gradients of the queries. For bfloat16 tensors, recomputes the result in float32,
  // because in.out is rounded. The documentation of TensorCoreScan explains why dd must be accurate.
  __device__ void store_query_gradient(int64_t begin) const {
    using Sums = typename Tiles::template Tile<kTileTokens, kWidth>;
    T dd[kRowsPerThread] = {};
    const auto add_terms = [&](int i, int64_t position, int64_t feature, const T(&values)[2]) {
      T gradients[2];
      head.dn.load_pair(position, feature, gradients);
      dd[i] -= values[0] * gradients[0] + values[1] * gradients[1];
    };
    if constexpr (std::is_same_v<S, BFloat16>)
      compute_chunk_output<Tiles, Output::result, kWidth>(memory, in, head, head.queries, head.keys,
                                                          head.values, begin, state, dd, nullptr, add_terms);
    else
      for (int i = 0; i < kRowsPerThread; ++i) {
        const int64_t position = begin + Sums::row(i);
        if (position >= in.s.query_length) continue;
        const S* const row = in.out.row(head.example, position, head.head);
        for (int64_t first = Sums::column(0); first < in.s.value_dim; first += kWidth)
          for (int j = 0; j < Sums::kColumnsPerThread; ++j)
            if (first + j < in.s.value_dim) dd[i] -= row[first + j] * head.dn.load(position, first + j);
      }
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < kRowsPerThread; ++i) {
      dd[i] = in.s.normalized ? Sums::template reduce_row<Plus>(dd[i]) : T{0};
      const int64_t position = begin + Sums::row(i);
      if (position < in.s.query_length && Sums::is_row_leader()) in.dd[head.row_offset + position] = dd[i];
    }
    if (!outputs.gq.data) return;
    compute_chunk_output<Tiles, Output::query_gradient, kWidth>(
        memory, in, head, head.dn, head.values, head.keys, begin, state, dd, nullptr,
        [&](int i, int64_t position, int64_t feature, T(&values)[2]) {
          store_feature_gradient(outputs.gq, head.queries, position, feature, values, dd[i]);
        });
  }

  __device__ void store_key_value_gradients(int64_t begin) const {
    const T none[kRowsPerThread] = {};
    if (outputs.gk.data)
      compute_chunk_output<Tiles, Output::key_gradient, kWidth>(
          memory, in, head, head.values, head.dn, head.queries, begin, state, none, nullptr,
          [&](int, int64_t position, int64_t feature, T(&values)[2]) {
            store_feature_gradient(outputs.gk, head.keys, position, feature, values, T{1});
          });
    if (outputs.gv.data)
      compute_chunk_output<Tiles, Output::value_gradient, kWidth>(
          memory, in, head, head.keys, head.queries, head.dn, begin, state, none, nullptr,
          [&](int, int64_t position, int64_t feature, const T(&values)[2]) {
            store_pair(outputs.gv.row(head.example, position, head.head), feature, in.s.value_dim, values);
          });
  }

 private:
  // Writes a pair of gradients with respect to q or k to `target`. On entry, `values` contains the gradients
  // with respect to phi(q) or phi(k) without one term. The missing term, `factor` times the vector of the
  // state, is added first. Gradients of masked keys are set to 0.
  __device__ void store_feature_gradient(const AttentionRows<S>& target, const HeadRows<S>& features,
                                         int64_t position, int64_t feature, T (&values)[2], T factor) const {
    T mapped[2];
    features.load_pair(position, feature, mapped);
    for (int v = 0; v < 2; ++v) {
      if (feature + v >= in.s.dim) continue;
      values[v] += factor * state[(feature + v) * in.state_stride() + in.s.value_dim];
      values[v] = position < features.count
                      ? values[v] * compute_feature_derivative(features.feature_map, mapped[v])
                      : T{0};
    }
    store_pair(target.row(head.example, position, head.head), feature, in.s.dim, values);
  }
};

// Returns the minimum number of resident blocks per multiprocessor, for __launch_bounds__. With a larger
// number, the compiler spills more registers. The emulation does not call the function.
template <class Tiles, Scan kScan, int kWidth>
[[maybe_unused]] constexpr int choose_resident_blocks() {
  if (Tiles::kThreads > kTensorCoreThreads) return 2;
  if (kWidth > 32) return kScan == Scan::result ? 3 : 2;
  return kScan == Scan::query_gradient ? 3 : 4;
}

// Computes the outputs of a scan. Each block scans one segment of one head.
template <class Tiles, Scan kScan, int kWidth, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void __launch_bounds__(Tiles::kThreads, choose_resident_blocks<Tiles, kScan, kWidth>())
    segment_scan_kernel(LinearAttentionInputs<S> in, LinearAttentionSegments<T> segments,
                        LinearAttentionOutputs<S> outputs) {
  constexpr bool kIsReverse = kScan == Scan::key_value_gradients;
  const typename Tiles::Memory memory;
  const unsigned index = blockIdx.x / segments.segments_per_head,
                 segment = blockIdx.x % segments.segments_per_head;
  const LinearAttentionHead<S> head(in, index);
  const int64_t size = in.state_size(), count = segments.states_per_head;
  T* const state = segments.workspace ? segments.workspace + blockIdx.x * size
                                      : get_dynamic_shared_memory<T>() + Tiles::Memory::kBytes / sizeof(T);
  const SegmentRange range = find_segment_range(in.s, segments, segment, kIsReverse);
  for (int64_t e = threadIdx.x; e < size; e += blockDim.x) {
    T sum = 0;
    for (int64_t c = range.first_state; c < range.last_state; ++c)
      sum += segments.states[(index * count + c) * size + e];
    state[e] = sum;
  }
  const ChunkScan<Tiles, kWidth> scan{memory, in, outputs, head, state};
  for (int64_t c = 0; c < range.chunks; ++c) {
    const int64_t chunk = range.begin + (kIsReverse ? range.chunks - 1 - c : c) * kTileTokens;
    if constexpr (kScan == Scan::result)
      scan.store_result(chunk);
    else if constexpr (kScan == Scan::query_gradient)
      scan.store_query_gradient(chunk);
    else
      scan.store_key_value_gradients(chunk);
    if (!in.s.causal || c + 1 == range.chunks) continue;
    __syncthreads();  // all threads have read the state
    add_tokens_to_state<Tiles, kIsReverse, kWidth>(memory, head, chunk, chunk + kTileTokens, false, state);
    __syncthreads();
  }
}

// Divides sequences of `length` tokens into segments. Sets only segments_per_head and tokens_per_segment. The
// number of segments is chosen to occupy a large device, but is at most kMaxSegments, because each thread
// block adds up the states of other segments of the head. The number of segments depends only on the shape,
// so the order of additions is the same on all devices.
template <class T>
LinearAttentionSegments<T> choose_segments(const LinearAttentionShape& s, int64_t length) {
  constexpr int64_t kBlocks = 512;  // number of blocks that occupy a large device
  constexpr int64_t kMaxSegments = 16;
  const int64_t chunks = std::max<int64_t>(count_tiles(length, kTileTokens), 1);
  const int64_t wanted = kBlocks / std::max<int64_t>(s.batch * s.heads, 1);
  const int64_t tokens = count_tiles(chunks, std::clamp<int64_t>(wanted, 1, kMaxSegments)) * kTileTokens;
  return {.segments_per_head = static_cast<unsigned>(std::max<int64_t>(count_tiles(length, tokens), 1)),
          .tokens_per_segment = tokens};
}

// The kernels of a scan, and their dynamic shared memory.
template <class S, class T = Compute<S>>
struct ScanKernels {
  void (*state)(LinearAttentionInputs<S>, LinearAttentionSegments<T>, T*);
  void (*scan)(LinearAttentionInputs<S>, LinearAttentionSegments<T>, LinearAttentionOutputs<S>);
  size_t state_bytes, scan_bytes;
  bool has_state_in_memory;  // false if the scan kernel keeps its state in registers
};

template <class Tiles, Scan kScan, class S = typename Tiles::Stored>
ScanKernels<S> choose_kernels(const LinearAttentionInputs<S>& in, const LinearAttentionOutputs<S>& outputs) {
  ScanKernels<S> kernels;
  const int64_t width = std::max(in.s.dim, in.s.value_dim);
  const auto set_segment_kernels = [&](auto columns) {
    constexpr int kWidth = decltype(columns)::value;
    kernels = {segment_state_kernel<Tiles, kScan == Scan::key_value_gradients, kWidth>,
               segment_scan_kernel<Tiles, kScan, kWidth>, Tiles::Memory::kSliceBytes, Tiles::Memory::kBytes,
               true};
  };
  const auto set_tensor_core_kernels = [&](auto columns) {
    constexpr int kWidth = decltype(columns)::value;
    using Operations = TensorCoreScan<kScan, kWidth>;
    kernels = {tensor_core_state_kernel<kScan, kWidth>, tensor_core_scan_kernel<kScan, kWidth>,
               Operations::kStateRowBytes, Operations::kSharedBytes, false};
  };
  if constexpr (!std::is_same_v<S, BFloat16>)
    visit_tile_width<S>(width, set_segment_kernels);
  else if (uses_tensor_core_scan(in, outputs))
    visit_tile_width<float>(width, set_tensor_core_kernels);
  else
    set_segment_kernels(std::integral_constant<int, 64>{});  // only width 64, to save compile time
  return kernels;
}

// Launches the scan kernel. If the scan reads the states of segments, first launches the state kernel.
template <class Tiles, Scan kScan, class T = typename Tiles::Value, class S = typename Tiles::Stored>
void launch_scan(const LinearAttentionInputs<S>& in, const LinearAttentionOutputs<S>& outputs) {
  constexpr bool kIsReverse = kScan == Scan::key_value_gradients;
  constexpr size_t kMaxShared = 24 << 10;  // maximum size of a state in shared memory, in bytes
  const LinearAttentionShape& s = in.s;
  const int64_t length = kIsReverse ? s.key_length : s.query_length, heads = s.batch * s.heads;
  // The states of a head are sums over this number of tokens.
  const int64_t summed_length = kIsReverse ? s.query_length : s.key_length;
  LinearAttentionSegments<T> segments = choose_segments<T>(s, length);
  const LinearAttentionSegments<T> summed_segments = choose_segments<T>(s, summed_length);
  if (heads == 0 || length == 0) return;
  if (summed_length > 0 && (!s.causal || summed_segments.segments_per_head > 1))
    segments.states_per_head = summed_segments.segments_per_head;
  const ScanKernels<S> kernels = choose_kernels<Tiles, kScan>(in, outputs);
  const Scratch<T> states(heads * segments.states_per_head * in.state_size());
  segments.states = states.data();
  const size_t state_bytes =
      kernels.has_state_in_memory ? static_cast<size_t>(in.state_size()) * sizeof(T) : 0;
  const bool is_shared = state_bytes <= kMaxShared;
  const Scratch<T> workspace(is_shared ? 0 : heads * segments.segments_per_head * in.state_size());
  segments.workspace = workspace.data();
  if (segments.states_per_head > 0)
    launch(kernels.state,
           make_row_launch(heads * summed_segments.segments_per_head, Tiles::kThreads, kernels.state_bytes),
           in, summed_segments, states.data());
  launch(kernels.scan,
         make_row_launch(heads * segments.segments_per_head, Tiles::kThreads,
                         kernels.scan_bytes + (is_shared ? state_bytes : 0)),
         in, segments, outputs);
}

}  // namespace

template <class S>
void linear_attention_forward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                              AttentionRows<const S> k, AttentionRows<const S> v, S* out,
                              Compute<S>* inverse_denominators) {
  launch_scan<TilesFor<S>, Scan::result>(
      make_inputs<S>({s, q, k, v, {}, {}, nullptr, nullptr}),
      {.out = make_contiguous_rows(out, s.query_length, s.heads, s.value_dim),
       .inverse_denominators = inverse_denominators});
}

template <class S>
void linear_attention_backward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v, const S* out,
                               const Compute<S>* inverse_denominators, AttentionRows<const S> g,
                               AttentionGradients<S> gradients) {
  // For bfloat16 tensors, the gradient of the queries needs two bfloat16 numbers per element, as the
  // documentation of TensorCoreScan explains.
  using Exact = std::conditional_t<std::is_same_v<S, BFloat16>, SplitTensorTiles, SimtTiles<S>>;
  const Scratch<Compute<S>> dd(s.batch * s.heads * s.query_length);
  const auto in =
      make_inputs<S>({s, q, k, v, g, make_contiguous_rows(out, s.query_length, s.heads, s.value_dim),
                      inverse_denominators, dd.data()});
  launch_scan<Exact, Scan::query_gradient>(in, {.gq = gradients.gq});
  if (!gradients.gk.data && !gradients.gv.data) return;
  launch_scan<TilesFor<S>, Scan::key_value_gradients>(in, {.gk = gradients.gk, .gv = gradients.gv});
}

template <class T>
struct LinearAttentionKernels {
  inline static const FunctionInstances all{&linear_attention_forward<T>, &linear_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct LinearAttentionKernels<float>;
                 template struct LinearAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LinearAttentionKernels<double>;)

}  // namespace tapeformer::cuda
