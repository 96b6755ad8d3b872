#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/linear_attention_rows.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

constexpr int kStepThreads = 256;
// The number of adjacent columns of the state that a lane of warp_step_kernel loads at a time.
constexpr int kStepColumns = Pack<float>::kSize;

// The inputs of linear_attention_step().
template <class T>
struct StepInputs {
  AttentionRows<const T> q, k, v, numerator_q, numerator_k;
};

// Processes the elements first, first + stride, … of the rows of a head: adds phi(k) to key_sum, writes the
// features of the numerator to `query` and `key`, and returns the sum of the products phi(q) * key_sum.
template <class T>
__device__ T update_key_sum(const LinearAttentionShape& s, const StepInputs<T>& in, int64_t example,
                            int64_t head, int64_t first, int64_t stride, T* key_sum, T* query, T* key) {
  const T *const q = in.q.row(example, 0, head), *const k = in.k.row(example, 0, head),
                 *const numerator_q = in.numerator_q.row(example, 0, head),
                 *const numerator_k = in.numerator_k.row(example, 0, head);
  T product = 0;
  for (int64_t d = first; d < s.dim; d += stride) {
    const T query_feature = apply_feature_map(s.feature_map, q[d]),
            key_feature = apply_feature_map(s.feature_map, k[d]);
    const T z = key_sum[d] + key_feature;
    key_sum[d] = z;
    product += query_feature * z;
    query[d] = in.numerator_q.data ? numerator_q[d] : query_feature;
    key[d] = in.numerator_k.data ? numerator_k[d] : key_feature;
  }
  return product;
}

// Computes linear_attention_step() for one head per warp. A row of the state consists of lanes_per_row Packs,
// and each of lanes_per_row adjacent lanes loads one Pack. lanes_per_row is a power of two and at most 32, so
// the warp loads one or more whole rows at a time. To hide the latency of memory, each lane loads kRows Packs
// before it uses the first Pack.
template <class O>
__global__ void __launch_bounds__(kWarpSize* kRowsPerBlock)
    warp_step_kernel(LinearAttentionShape s, StepInputs<float> in, int lanes_per_row, float* kv,
                     float* key_sum, AttentionRows<O> out) {
  constexpr int kRows = 8;
  const int64_t index = first_warp_row();
  if (index >= s.batch * s.heads) return;
  const int dim = static_cast<int>(s.dim), lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t head = index % s.heads, example = index / s.heads;
  float* const query = get_dynamic_shared_memory<float>() + threadIdx.x / kWarpSize * 2 * dim;
  float* const key = query + dim;
  const float product =
      update_key_sum(s, in, example, head, lane, kWarpSize, key_sum + index * dim, query, key);
  __syncwarp();  // all lanes have written their features
  const float inverse = 1 / (warp_reduce<Plus>(product) + static_cast<float>(s.eps));
  const int column = lane % lanes_per_row * kStepColumns, rows_per_load = kWarpSize / lanes_per_row;
  float* const state = kv + index * dim * s.value_dim + column;
  float value[kStepColumns], result[kStepColumns] = {};
  load_group<kStepColumns>(in.v.row(example, 0, head) + column, value);
  for (int first = lane / lanes_per_row; first < dim; first += kRows * rows_per_load) {
    float rows[kRows][kStepColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (const int d = first + i * rows_per_load; d < dim)
        load_group<kStepColumns>(state + d * s.value_dim, rows[i]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int d = first + i * rows_per_load;
      if (d >= dim) continue;
#pragma unroll
      for (int j = 0; j < kStepColumns; ++j) {
        rows[i][j] += key[d] * value[j];
        result[j] += query[d] * rows[i][j];
      }
      store_group<kStepColumns>(state + d * s.value_dim, rows[i]);
    }
  }
  for (int bits = lanes_per_row; bits < kWarpSize; bits *= 2)
#pragma unroll
    for (int j = 0; j < kStepColumns; ++j) result[j] += __shfl_xor_sync(kAllLanes, result[j], bits);
  if (lane >= lanes_per_row) return;
#pragma unroll
  for (int j = 0; j < kStepColumns; ++j) result[j] *= inverse;
  store_group<kStepColumns>(out.row(example, 0, head) + column, result);
}

// Returns whether each row begins at a multiple of kStepColumns elements in memory, as load_group() and
// store_group() require.
template <class T>
bool has_aligned_groups(const AttentionRows<T>& rows) {
  constexpr int64_t kBytes = kStepColumns * sizeof(T);
  return reinterpret_cast<uintptr_t>(rows.data) % kBytes == 0 && rows.batch_stride % kStepColumns == 0 &&
         rows.head_stride % kStepColumns == 0;
}

// Launches warp_step_kernel. Returns false, without a launch, if the kernel does not support the sizes or the
// alignment of the arrays.
template <class O>
bool launch_warp_step(const LinearAttentionShape& s, const StepInputs<float>& in, float* kv, float* key_sum,
                      AttentionRows<O> out) {
  constexpr int64_t kMaxDim = 512;  // limits the shared memory of a block to 32 KiB
  const int64_t lanes_per_row = s.value_dim / kStepColumns;
  if (s.value_dim % kStepColumns != 0 || lanes_per_row > kWarpSize ||
      (lanes_per_row & (lanes_per_row - 1)) != 0 || s.dim > kMaxDim || !are_aligned_to_packs(kv) ||
      !has_aligned_groups(in.v) || !has_aligned_groups(out))
    return false;
  LaunchConfig shape = make_warp_row_launch(s.batch * s.heads, std::numeric_limits<int32_t>::max());
  shape.shared_bytes = static_cast<size_t>(kRowsPerBlock * 2 * s.dim) * sizeof(float);
  launch(warp_step_kernel<O>, shape, s, in, static_cast<int>(lanes_per_row), kv, key_sum, out);
  return true;
}

// Computes linear_attention_step() for one head per thread block. Supports all sizes of heads. The threads of
// a block form groups of `columns` threads. Each group processes one row of the state at a time, so memory
// accesses are coalesced. The partial results of the groups are added in shared memory.
template <class T, class O>
__global__ void step_kernel(LinearAttentionShape s, StepInputs<T> in, int64_t columns, T* kv, T* key_sum,
                            AttentionRows<O> out) {
  T* const query = get_dynamic_shared_memory<T>();
  T* const key = query + s.dim;
  T* const partial_dots = key + s.dim;  // (groups, columns)
  const int64_t head = blockIdx.x % s.heads, example = blockIdx.x / s.heads, thread = threadIdx.x;
  T* const state = kv + int64_t{blockIdx.x} * s.dim * s.value_dim;
  const T product = update_key_sum(s, in, example, head, thread, int64_t{blockDim.x},
                                   key_sum + int64_t{blockIdx.x} * s.dim, query, key);
  // block_sum() also synchronises the writes to query and key.
  const T inverse = 1 / (block_sum(product) + static_cast<T>(s.eps));
  const int64_t groups = blockDim.x / columns, group = thread / columns, column = thread % columns;
  for (int64_t first = 0; first < s.value_dim; first += columns) {
    const int64_t m = first + column;
    const bool is_active = group < groups && m < s.value_dim;
    if (is_active) {
      const T value = in.v.row(example, 0, head)[m];
      T result = 0;
#pragma unroll 4
      for (int64_t d = group; d < s.dim; d += groups) {
        const T next = state[d * s.value_dim + m] + key[d] * value;
        state[d * s.value_dim + m] = next;
        result += query[d] * next;
      }
      partial_dots[group * columns + column] = result;
    }
    __syncthreads();
    if (is_active && group == 0) {
      T result = 0;
      for (int64_t other_group = 0; other_group < groups; ++other_group)
        result += partial_dots[other_group * columns + column];
      out.row(example, 0, head)[m] = convert_element<O>(result * inverse);
    }
    __syncthreads();
  }
}

}  // namespace

template <class T, class O>
void linear_attention_step(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                           AttentionRows<const T> k, AttentionRows<const T> v,
                           AttentionRows<const T> numerator_q, AttentionRows<const T> numerator_k, T* kv,
                           T* key_sum, AttentionRows<O> out) {
  const StepInputs<T> in{q, k, v, numerator_q, numerator_k};
  if constexpr (std::is_same_v<T, float>)
    if (launch_warp_step(s, in, kv, key_sum, out)) return;
  const int64_t columns = std::min<int64_t>(s.value_dim, kStepThreads);
  const size_t shared = static_cast<size_t>(2 * s.dim + kStepThreads) * sizeof(T);
  launch(step_kernel<T, O>, make_row_launch(s.batch * s.heads, kStepThreads, shared), s, in, columns, kv,
         key_sum, out);
}

template <class T, class O>
struct LinearAttentionStepKernels {
  inline static const FunctionInstances all{&linear_attention_step<T, O>};
};
template struct LinearAttentionStepKernels<float, float>;
template struct LinearAttentionStepKernels<float, BFloat16>;
template struct LinearAttentionStepKernels<double, double>;

}  // namespace tapeformer::cuda
