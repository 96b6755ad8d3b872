#include <algorithm>

#include "core/base/instances.h"
#include "core/threads/threads.h"
#include "ops/cpu/query_attention.h"

namespace tapeformer::cpu {

template <class T>
void softmax_attention_step(Backend, const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                            AttentionRows<const T> key, AttentionRows<const T> value, AttentionRows<T> k,
                            AttentionRows<T> v, int64_t capacity, AttentionRows<T> out) {
  const int64_t query = s.key_length - 1, attended = s.key_length - s.pattern.window.begin(query);
  const int64_t work = s.heads * attended * (s.dim + s.value_dim);  // multiply-adds per sequence
  constexpr int64_t kMinWorkPerThread = 1 << 15;
  int64_t group = s.pattern.differs_by_head() ? 1 : std::min(QueryAttention<T>::kMaxHeads, s.heads);
  if (s.batch < get_thread_count() && work > kMinWorkPerThread)
    group = std::min(group, (s.batch * s.heads + get_thread_count() - 1) / get_thread_count());
  const int64_t groups = group > 0 ? (s.heads + group - 1) / group : 0;
  const int64_t grain = std::max<int64_t>(kMinWorkPerThread * groups / std::max<int64_t>(work, 1), 1);
  const AttentionRows<const T> keys{k.data, k.batch_stride, k.length_stride, k.head_stride},
      values{v.data, v.batch_stride, v.length_stride, v.head_stride};
  parallel_for(s.batch * groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / groups, first = i % groups * group, last = query % capacity;
      const int64_t heads = std::min(group, s.heads - first);
      for (int64_t head = first; head < first + heads; ++head) {
        std::copy_n(key.row(batch, 0, head), s.dim, k.row(batch, last, head));
        std::copy_n(value.row(batch, 0, head), s.value_dim, v.row(batch, last, head));
      }
      QueryAttention<T>(s, batch, first, heads, keys, values, capacity)
          .attend({s.pattern.get_head_pattern(first), s.key_length, s.key_length, s.key_length, true}, query,
                  q, 0, out);
    }
  });
}

template <class T>
struct SoftmaxAttentionStepKernels {
  inline static const FunctionInstances all{&softmax_attention_step<T>};
};
template struct SoftmaxAttentionStepKernels<float>;
template struct SoftmaxAttentionStepKernels<double>;

}  // namespace tapeformer::cpu
