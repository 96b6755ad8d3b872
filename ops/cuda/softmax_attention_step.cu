#include <algorithm>
#include <limits>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/online_softmax.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer::cuda {
namespace {

// The number of keys between two updates of the online softmax, and the number of threads per block.
constexpr int kStepKeys = 256;

// The rows of one head of keys or values. Earlier tokens are in a ring buffer, and the newest token is in
// `newest`, because several blocks can read one head, and only one block stores its newest token.
template <class Stored>
struct TokenRows {
  using T = Compute<Stored>;
  Stored* buffer;
  int64_t stride, capacity, last;  // `last` is the position of the newest token
  const T* newest;

  // Stores the newest token, of which each thread of the block stores some elements.
  __device__ void store_newest(int64_t count) const {
    for (int64_t i = threadIdx.x; i < count; i += kStepKeys)
      buffer[last % capacity * stride + i] = static_cast<Stored>(newest[i]);
  }
  __device__ T load(int64_t position, int64_t i) const {
    return static_cast<T>(position == last ? static_cast<Stored>(newest[i])
                                           : buffer[position % capacity * stride + i]);
  }
};

// Computes softmax_attention_step() for one head per thread block. Each warp first computes the scores of
// some of the keys, one key at a time. Then the threads of the block form groups of `columns` threads, and
// each group adds the weighted value of one key at a time to the result.
template <class Stored, class T = Compute<Stored>>
__global__ void step_kernel(SoftmaxAttentionShape s, GraphStep last_position, AttentionRows<const T> q,
                            AttentionRows<const T> new_key, AttentionRows<const T> new_value,
                            AttentionRows<Stored> k, AttentionRows<Stored> v, int64_t capacity,
                            int64_t columns, AttentionRows<T> out) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  __shared__ T weights[kStepKeys];
  T* const group_results = get_dynamic_shared_memory<T>();  // (groups, value_dim)
  const int64_t head = blockIdx.x % s.heads, example = blockIdx.x / s.heads, thread = threadIdx.x;
  const int64_t groups = kStepKeys / columns, group = thread / columns, lane = thread % kWarpSize;
  const T* const query = q.row(example, 0, head);
  const T scale = static_cast<T>(s.scale);
  const int64_t length = last_position.current_step() + 1, key_head = s.key_head(head);
  const TokenRows<Stored> keys{k.row(example, 0, key_head), k.length_stride, capacity, length - 1,
                               new_key.row(example, 0, key_head)},
      values{v.row(example, 0, key_head), v.length_stride, capacity, length - 1,
             new_value.row(example, 0, key_head)};
  if (head % s.head_group == 0) {
    keys.store_newest(s.dim);
    values.store_newest(s.value_dim);
  }
  if (group < groups)
    for (int64_t m = thread % columns; m < s.value_dim; m += columns)
      group_results[group * s.value_dim + m] = 0;
  T maximum = -kInfinity, sum = 0;
  const AttendedKeys attended{s.pattern.get_head_pattern(head), length, length, length, true};
  int64_t count = 0;
  for (PositionRun run = attended.find_keys(length - 1, length, 0); !run.is_empty();
       run = attended.find_keys(length - 1, length, run.begin + count)) {
    const int64_t begin = run.begin;
    count = run.end - begin < kStepKeys ? run.end - begin : kStepKeys;
    for (int64_t j = thread / kWarpSize; j < count; j += kStepKeys / kWarpSize) {
      T product = 0;
      for (int64_t d = lane; d < s.dim; d += kWarpSize) product += query[d] * keys.load(begin + j, d);
      product = warp_reduce<Plus>(product);
      if (lane == 0) weights[j] = scale * product;
    }
    __syncthreads();
    const T score = thread < count ? weights[thread] : -kInfinity;
    const auto update = update_online_softmax(maximum, block_max(score));
    const T weight = std::exp(score - update.shift);
    weights[thread] = weight;
    sum = update.rescale_factor * sum + block_sum(weight);
    maximum = update.maximum;
    if (group < groups)
      for (int64_t m = thread % columns; m < s.value_dim; m += columns) {
        T result = update.rescale_factor * group_results[group * s.value_dim + m];
        for (int64_t j = group; j < count; j += groups) result += weights[j] * values.load(begin + j, m);
        group_results[group * s.value_dim + m] = result;
      }
    __syncthreads();
  }
  for (int64_t m = thread; m < s.value_dim; m += kStepKeys) {
    T result = 0;
    for (int64_t other_group = 0; other_group < groups; ++other_group)
      result += group_results[other_group * s.value_dim + m];
    out.row(example, 0, head)[m] = sum == 0 ? T{0} : result / sum;
  }
}

}  // namespace

template <class Stored>
void softmax_attention_step(Backend, const SoftmaxAttentionShape& s, AttentionRows<const Compute<Stored>> q,
                            AttentionRows<const Compute<Stored>> key,
                            AttentionRows<const Compute<Stored>> value, AttentionRows<Stored> k,
                            AttentionRows<Stored> v, int64_t capacity, AttentionRows<Compute<Stored>> out) {
  const int64_t columns = std::min<int64_t>(s.value_dim, kStepKeys);
  const size_t shared = static_cast<size_t>(kStepKeys / columns * s.value_dim) * sizeof(Compute<Stored>);
  launch(step_kernel<Stored>, make_row_launch(s.batch * s.heads, kStepKeys, shared), s,
         GraphStep(s.key_length - 1), q, key, value, k, v, capacity, columns, out);
}

template <class Stored>
struct SoftmaxAttentionStepKernels {
  inline static const FunctionInstances all{&softmax_attention_step<Stored>};
};
template struct SoftmaxAttentionStepKernels<float>;
template struct SoftmaxAttentionStepKernels<BFloat16>;
template struct SoftmaxAttentionStepKernels<double>;

}  // namespace tapeformer::cuda
