#include "ops/kernels/relative_attention.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/base/instances.h"
#include "core/cpu/vector.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

int64_t choose_relative_grain(int64_t work) {
  constexpr int64_t kMinElements = 1 << 15;
  return std::max<int64_t>(kMinElements / std::max<int64_t>(work, 1), 1);
}

// Relative attention of the newest query of a sequence to the keys in the ring buffers. run() processes one
// head.
template <class T>
class RelativeStep {
 public:
  RelativeStep(const RelativeAttentionStepShape& shape, const RelativeAttentionStepInputs<T>& inputs,
               const RelativeAttentionRingBuffers<T>& keys, const RelativeAttentionRingBuffers<T>& values,
               AttentionRows<T> out)
      : shape_(shape), in_(inputs), keys_(keys), values_(values), out_(out) {}

  void run(int64_t batch, int64_t head, T* scores, T* content, T* position) const {
    const int64_t query = shape_.length - 1, count = shape_.key_count(query);
    std::copy_n(in_.k.row(batch, 0, head), shape_.dim, keys_.row(shape_, query, 0, batch, head));
    std::copy_n(in_.v.row(batch, 0, head), shape_.dim, values_.row(shape_, query, 0, batch, head));
    const T* const q = in_.q.row(batch, 0, head);
    for (int64_t d = 0; d < shape_.dim; ++d) {
      content[d] = q[d] + in_.content_bias[head * shape_.dim + d];
      position[d] = q[d] + in_.position_bias[head * shape_.dim + d];
    }
    T maximum = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < count; ++j) {
      const T* const key = keys_.row(shape_, query, j, batch, head);
      const T* const distance = in_.distance_embeddings + (j * shape_.heads + head) * shape_.dim;
      scores[j] = static_cast<T>(shape_.scale) *
                  (dot(content, key, shape_.dim) + dot(position, distance, shape_.dim));
      maximum = std::max(maximum, scores[j]);
    }
    T* const out = out_.row(batch, 0, head);
    std::fill_n(out, shape_.dim, T{0});
    T sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      const T weight = vmath::exp(scores[j] - maximum);
      const T* const value = values_.row(shape_, query, j, batch, head);
      sum += weight;
#pragma omp simd
      for (int64_t d = 0; d < shape_.dim; ++d) out[d] += weight * value[d];
    }
    for (int64_t d = 0; d < shape_.dim; ++d) out[d] /= sum;
  }

 private:
  const RelativeAttentionStepShape& shape_;
  const RelativeAttentionStepInputs<T>& in_;
  const RelativeAttentionRingBuffers<T>&keys_, &values_;
  const AttentionRows<T> out_;
};

}  // namespace

template <class T>
void relative_attention_step(Backend, const RelativeAttentionStepShape& s,
                             const RelativeAttentionStepInputs<T>& inputs,
                             const RelativeAttentionRingBuffers<T>& keys,
                             const RelativeAttentionRingBuffers<T>& values, T* scores, AttentionRows<T> out) {
  const int64_t count = s.key_count(s.length - 1);
  const RelativeStep<T> step(s, inputs, keys, values, out);
  parallel_for(s.batch * s.heads, choose_relative_grain(3 * count * s.dim), [&](int64_t first, int64_t last) {
    std::vector<T> content(static_cast<size_t>(s.dim)), position(content);
    for (int64_t i = first; i < last; ++i)
      step.run(i / s.heads, i % s.heads, scores + i * s.distances, content.data(), position.data());
  });
}

template <class T>
struct RelativeAttentionKernels {
  inline static const FunctionInstances all{&relative_attention_step<T>};
};
template struct RelativeAttentionKernels<float>;
template struct RelativeAttentionKernels<double>;

}  // namespace tapeformer::cpu
