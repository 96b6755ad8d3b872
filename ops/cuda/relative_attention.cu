#include <limits>

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/relative_attention.h"

namespace tapeformer::cuda {
namespace {

constexpr int kStepThreads = 256;

// Implements relative_attention_step(). Each thread block processes one head. First, each warp computes the
// scores of some of the keys, one key at a time. Then each thread computes some of the features of the
// result.
template <class T>
__global__ void relative_step_kernel(RelativeAttentionStepShape s, GraphStep query_step,
                                     RelativeAttentionStepInputs<T> in, RelativeAttentionRingBuffers<T> keys,
                                     RelativeAttentionRingBuffers<T> values, T* score_memory,
                                     AttentionRows<T> out) {
  const int64_t head = blockIdx.x % s.heads, example = blockIdx.x / s.heads, thread = threadIdx.x;
  const int64_t query = query_step.current_step(), count = s.key_count(query);
  T* const scores = score_memory + int64_t{blockIdx.x} * s.distances;
  const T* const q = in.q.row(example, 0, head);
  const T *const u = in.content_bias + head * s.dim, *const w = in.position_bias + head * s.dim;
  for (int64_t d = thread; d < s.dim; d += kStepThreads) {
    keys.row(s, query, 0, example, head)[d] = in.k.row(example, 0, head)[d];
    values.row(s, query, 0, example, head)[d] = in.v.row(example, 0, head)[d];
  }
  __syncthreads();
  T maximum = -std::numeric_limits<T>::infinity();
  for (int64_t j = thread / kWarpSize; j < count; j += kStepThreads / kWarpSize) {
    const T* const key = keys.row(s, query, j, example, head);
    const T* const distance = in.distance_embeddings + (j * s.heads + head) * s.dim;
    T product = 0;
    for (int64_t d = thread % kWarpSize; d < s.dim; d += kWarpSize)
      product += (q[d] + u[d]) * key[d] + (q[d] + w[d]) * distance[d];
    const T score = static_cast<T>(s.scale) * warp_reduce<Plus>(product);
    if (thread % kWarpSize == 0) scores[j] = score;
    if (maximum < score) maximum = score;
  }
  maximum = block_max(maximum);
  T sum = 0;
  for (int64_t j = thread; j < count; j += kStepThreads) {
    scores[j] = std::exp(scores[j] - maximum);
    sum += scores[j];
  }
  sum = block_sum(sum);
  for (int64_t d = thread; d < s.dim; d += kStepThreads) {
    T result = 0;
    for (int64_t j = 0; j < count; ++j) result += scores[j] * values.row(s, query, j, example, head)[d];
    out.row(example, 0, head)[d] = result / sum;
  }
}

}  // namespace

template <class T>
void relative_attention_step(Backend, const RelativeAttentionStepShape& s,
                             const RelativeAttentionStepInputs<T>& inputs,
                             const RelativeAttentionRingBuffers<T>& keys,
                             const RelativeAttentionRingBuffers<T>& values, T* scores, AttentionRows<T> out) {
  launch(relative_step_kernel<T>, make_row_launch(s.batch * s.heads, kStepThreads), s,
         GraphStep(s.length - 1), inputs, keys, values, scores, out);
}

template <class T>
struct RelativeAttentionKernels {
  inline static const FunctionInstances all{&relative_attention_step<T>};
};
template struct RelativeAttentionKernels<float>;
template struct RelativeAttentionKernels<double>;

}  // namespace tapeformer::cuda
