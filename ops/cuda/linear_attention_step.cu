#include <algorithm>

#include "core/instances.h"
#include "ops/cuda/linear_attention_rows.h"

namespace tapeformer::cuda {
namespace {

constexpr int kStepThreads = 256;

// Runs one block per head. The threads cover the columns of the state, for `groups` rows at a time, so
// accesses are coalesced. The partial dot products of the groups are reduced in shared memory.
template <class T>
__global__ void step_kernel(LinearAttentionShape s, AttentionRows<const T> q, AttentionRows<const T> k,
                            AttentionRows<const T> v, int64_t columns, T* kv, T* key_sum,
                            AttentionRows<T> out) {
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
      out.row(example, 0, head)[m] = read * inverse;
    }
    __syncthreads();
  }
}

}  // namespace

template <class T>
void linear_attention_step(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                           AttentionRows<const T> k, AttentionRows<const T> v, T* kv, T* key_sum,
                           AttentionRows<T> out) {
  const int64_t columns = std::min<int64_t>(s.value_dim, kStepThreads);
  const size_t shared = static_cast<size_t>(2 * s.dim + kStepThreads) * sizeof(T);
  const int64_t state = s.batch * s.heads * s.dim * (s.value_dim + 1) * static_cast<int64_t>(sizeof(T));
  launch(step_kernel<T>, over_rows(s.batch * s.heads, kStepThreads, shared).updating(state), s, q, k, v,
         columns, kv, key_sum, out);
}

template <class T>
struct LinearAttentionStepKernels {
  inline static const Instances all{&linear_attention_step<T>};
};
template struct LinearAttentionStepKernels<float>;
template struct LinearAttentionStepKernels<double>;

}  // namespace tapeformer::cuda
