#include <algorithm>

#include "core/base/instances.h"
#include "ops/cpu/query_attention.h"

namespace tapeformer::cpu {
namespace {

// Writes a token to row `last` of the ring buffers of heads [first, first + heads) of keys and values.
template <class Stored>
void store_token(const SoftmaxAttentionShape& s, int64_t batch, int64_t first, int64_t heads, int64_t last,
                 AttentionRows<const Compute<Stored>> key, AttentionRows<const Compute<Stored>> value,
                 AttentionRows<Stored> k, AttentionRows<Stored> v) {
  for (int64_t head = first; head < first + heads; ++head) {
    convert_elements(key.row(batch, 0, head), s.dim, k.row(batch, last, head));
    convert_elements(value.row(batch, 0, head), s.value_dim, v.row(batch, last, head));
  }
}

}  // namespace

template <class Stored>
void softmax_attention_step(Backend, const SoftmaxAttentionShape& s, AttentionRows<const Compute<Stored>> q,
                            AttentionRows<const Compute<Stored>> key,
                            AttentionRows<const Compute<Stored>> value, AttentionRows<Stored> k,
                            AttentionRows<Stored> v, int64_t capacity, AttentionRows<Compute<Stored>> out) {
  const int64_t query = s.key_length - 1, attended = s.key_length - s.pattern.window.begin(query),
                last = query % capacity;
  const AttentionRows<const Stored> keys{k.data, k.batch_stride, k.length_stride, k.head_stride},
      values{v.data, v.batch_stride, v.length_stride, v.head_stride};
  const int64_t work = s.heads * attended * (s.dim + s.value_dim);
  // Threads that process heads of queries can share a head of keys, so the keys of all heads are stored
  // first.
  const bool is_grouped = s.head_group > 1;
  for (int64_t batch = 0; is_grouped && batch < s.batch; ++batch)
    store_token(s, batch, 0, s.heads / s.head_group, last, key, value, k, v);
  for_each_head_group(s, work, [&](int64_t batch, int64_t first, int64_t heads) {
    if (!is_grouped) store_token(s, batch, first, heads, last, key, value, k, v);
    QueryAttention<Stored>(s, batch, first, heads, keys, values, capacity)
        .attend({s.pattern.get_head_pattern(first), s.key_length, s.key_length, s.key_length, true}, query, q,
                0, out);
  });
}

template <class Stored>
struct SoftmaxAttentionStepKernels {
  inline static const FunctionInstances all{&softmax_attention_step<Stored>};
};
template struct SoftmaxAttentionStepKernels<float>;
template struct SoftmaxAttentionStepKernels<BFloat16>;
template struct SoftmaxAttentionStepKernels<double>;

}  // namespace tapeformer::cpu
