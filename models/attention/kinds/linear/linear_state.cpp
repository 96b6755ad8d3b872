#include "models/attention/kinds/linear/linear_state.h"

#include "ops/elementwise.h"
#include "ops/feature_map.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace tapeformer {

Tensor read_linear_attention_tokens(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionState& state, int64_t position,
                                    LinearAttentionOptions options) {
  options.causal = true;
  const DType dtype = get_compute_dtype(v.dtype());
  const int64_t width = v.size(3);
  const auto map = [&](const Tensor& x) { return apply_feature_map(options.feature_map, cast(x, dtype)); };
  const Tensor keys = map(k), ones = Tensor::full({v.size(0), v.size(1), v.size(2), 1}, 1, dtype, v.device()),
               values = concat({cast(v, dtype), ones}, -1);
  const auto attend = [&] {
    if (position == 0) return linear_attention(q, k, v, options);
    const Tensor sums = concat({state.kv, state.key_sum.view({v.size(0), v.size(2), k.size(3), 1})}, -1),
                 queries = map(q),
                 inside = linear_attention(
                     queries, keys, values,
                     {.causal = true, .feature_map = FeatureMap::identity, .normalized = false}),
                 before = permute(matmul(permute(queries, {0, 2, 1, 3}), sums), {0, 2, 1, 3}),
                 total = add(inside, before);
    return cast(div(slice(total, -1, 0, width), add(slice(total, -1, width, width + 1), options.eps)),
                v.dtype());
  };
  const Tensor result = attend(), added = matmul(permute(keys, {0, 2, 3, 1}), permute(values, {0, 2, 1, 3}));
  state.kv.add_scaled(contiguous(slice(added, -1, 0, width)));
  state.key_sum.add_scaled(reshape(slice(added, -1, width, width + 1), state.key_sum.shape()));
  return result;
}

}  // namespace tapeformer
