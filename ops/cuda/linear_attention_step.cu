#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/linear_attention_rows.h"
#include "ops/cuda/warp_row.h"

namespace tapeformer::cuda {
namespace {

constexpr int kStepThreads = 256;
// Number of adjacent columns of the state that a lane of warp_step_kernel loads at a time.
constexpr int kStepColumns = Pack<float>::kSize;

// Computes one head per warp. A row of the state consists of `lanes` Packs, where `lanes` is a power of two
// of at most 32. Lane l loads Pack l % lanes of every (32 / lanes)-th row. Eight Packs are loaded before the
// first is used, which hides the latency of memory.
template <class O>
__global__ void __launch_bounds__(kWarpSize* kRowsPerBlock)
    warp_step_kernel(LinearAttentionShape s, AttentionRows<const float> q, AttentionRows<const float> k,
                     AttentionRows<const float> v, int lanes, float* kv, float* key_sum,
                     AttentionRows<O> out) {
  constexpr int kRows = 8;
  const int64_t index = warp_of_grid();
  if (index >= s.batch * s.heads) return;
  const int dim = static_cast<int>(s.dim), lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int64_t head = index % s.heads, example = index / s.heads;
  float* const query = dynamic_shared<float>() + threadIdx.x / kWarpSize * 2 * dim;
  float* const key = query + dim;
  float* const sum = key_sum + index * dim;
  const float *const q_row = q.row(example, 0, head), *const k_row = k.row(example, 0, head);
  float product = 0;
  for (int d = lane; d < dim; d += kWarpSize) {
    query[d] = feature_of(s.feature_map, q_row[d]);
    key[d] = feature_of(s.feature_map, k_row[d]);
    const float z = sum[d] + key[d];
    sum[d] = z;
    product += query[d] * z;
  }
  __syncwarp();  // the other lanes have written their features
  const float inverse = 1 / (warp_reduce<Plus>(product) + static_cast<float>(s.eps));
  const int column = lane % lanes * kStepColumns, rows_of_load = kWarpSize / lanes;
  float* const state = kv + index * dim * s.value_dim + column;
  float value[kStepColumns], read[kStepColumns] = {};
  load_group<kStepColumns>(v.row(example, 0, head) + column, value);
  for (int first = lane / lanes; first < dim; first += kRows * rows_of_load) {
    float rows[kRows][kStepColumns];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (const int d = first + i * rows_of_load; d < dim)
        load_group<kStepColumns>(state + d * s.value_dim, rows[i]);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int d = first + i * rows_of_load;
      if (d >= dim) continue;
#pragma unroll
      for (int j = 0; j < kStepColumns; ++j) {
        rows[i][j] += key[d] * value[j];
        read[j] += query[d] * rows[i][j];
      }
      store_group<kStepColumns>(state + d * s.value_dim, rows[i]);
    }
  }
  for (int bits = lanes; bits < kWarpSize; bits *= 2)
#pragma unroll
    for (int j = 0; j < kStepColumns; ++j) read[j] += __shfl_xor_sync(kAllLanes, read[j], bits);
  if (lane >= lanes) return;
#pragma unroll
  for (int j = 0; j < kStepColumns; ++j) read[j] *= inverse;
  store_group<kStepColumns>(out.row(example, 0, head) + column, read);
}

// Returns whether the rows are aligned to groups of kStepColumns elements.
template <class T>
bool has_aligned_groups(const AttentionRows<T>& rows) {
  constexpr int64_t kBytes = kStepColumns * sizeof(T);
  return reinterpret_cast<uintptr_t>(rows.data) % kBytes == 0 && rows.batch_stride % kStepColumns == 0 &&
         rows.head_stride % kStepColumns == 0;
}

// Launches warp_step_kernel. Returns false if it does not support the sizes or the alignment.
template <class O>
bool launch_warp_step(const LinearAttentionShape& s, AttentionRows<const float> q,
                      AttentionRows<const float> k, AttentionRows<const float> v, float* kv, float* key_sum,
                      AttentionRows<O> out, int64_t state_bytes) {
  constexpr int64_t kMaxDim = 512;  // limits the shared memory of a block to 32 KiB
  const int64_t lanes = s.value_dim / kStepColumns;
  if (s.value_dim % kStepColumns != 0 || lanes > kWarpSize || (lanes & (lanes - 1)) != 0 || s.dim > kMaxDim ||
      !aligned_to_packs(kv) || !has_aligned_groups(v) || !has_aligned_groups(out))
    return false;
  Launch shape = over_warp_rows(s.batch * s.heads, std::numeric_limits<int32_t>::max());
  shape.shared_bytes = static_cast<size_t>(kRowsPerBlock * 2 * s.dim) * sizeof(float);
  launch(warp_step_kernel<O>, shape.with_updated_bytes(state_bytes), s, q, k, v, static_cast<int>(lanes), kv,
         key_sum, out);
  return true;
}

// Runs one block per head. The threads cover the columns of the state, for `groups` rows at a time, so
// accesses are coalesced. The partial dot products of the groups are reduced in shared memory.
template <class T, class O>
__global__ void step_kernel(LinearAttentionShape s, AttentionRows<const T> q, AttentionRows<const T> k,
                            AttentionRows<const T> v, int64_t columns, T* kv, T* key_sum,
                            AttentionRows<O> out) {
  T* const query = dynamic_shared<T>();
  T* const key = query + s.dim;
  T* const partial = key + s.dim;  // (groups, columns)
  const int64_t head = blockIdx.x % s.heads, example = blockIdx.x / s.heads, thread = threadIdx.x;
  T* const state = kv + int64_t{blockIdx.x} * s.dim * s.value_dim;
  T* const sum = key_sum + int64_t{blockIdx.x} * s.dim;
  const T *const q_row = q.row(example, 0, head), *const k_row = k.row(example, 0, head);
  T product = 0;
  for (int64_t d = thread; d < s.dim; d += blockDim.x) {
    query[d] = feature_of(s.feature_map, q_row[d]);
    key[d] = feature_of(s.feature_map, k_row[d]);
    const T z = sum[d] + key[d];
    sum[d] = z;
    product += query[d] * z;
  }
  // block_sum() also synchronises the writes to query and key.
  const T inverse = 1 / (block_sum(product) + static_cast<T>(s.eps));
  const int64_t groups = blockDim.x / columns, group = thread / columns, column = thread % columns;
  for (int64_t first = 0; first < s.value_dim; first += columns) {
    const int64_t m = first + column;
    const bool works = group < groups && m < s.value_dim;
    if (works) {
      const T value = v.row(example, 0, head)[m];
      T read = 0;
#pragma unroll 4
      for (int64_t d = group; d < s.dim; d += groups) {
        const T next = state[d * s.value_dim + m] + key[d] * value;
        state[d * s.value_dim + m] = next;
        read += query[d] * next;
      }
      partial[group * columns + column] = read;
    }
    __syncthreads();
    if (works && group == 0) {
      T read = 0;
      for (int64_t other = 0; other < groups; ++other) read += partial[other * columns + column];
      out.row(example, 0, head)[m] = convert_element<O>(read * inverse);
    }
    __syncthreads();
  }
}

}  // namespace

template <class T, class O>
void linear_attention_step(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                           AttentionRows<const T> k, AttentionRows<const T> v, T* kv, T* key_sum,
                           AttentionRows<O> out) {
  const int64_t state = s.batch * s.heads * s.dim * (s.value_dim + 1) * static_cast<int64_t>(sizeof(T));
  if constexpr (std::is_same_v<T, float>)
    if (launch_warp_step(s, q, k, v, kv, key_sum, out, state)) return;
  const int64_t columns = std::min<int64_t>(s.value_dim, kStepThreads);
  const size_t shared = static_cast<size_t>(2 * s.dim + kStepThreads) * sizeof(T);
  launch(step_kernel<T, O>, over_rows(s.batch * s.heads, kStepThreads, shared).with_updated_bytes(state), s,
         q, k, v, columns, kv, key_sum, out);
}

template <class T, class O>
struct LinearAttentionStepKernels {
  inline static const Instances all{&linear_attention_step<T, O>};
};
template struct LinearAttentionStepKernels<float, float>;
template struct LinearAttentionStepKernels<float, BFloat16>;
template struct LinearAttentionStepKernels<double, double>;

}  // namespace tapeformer::cuda
