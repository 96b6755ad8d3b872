// One token of the recurrent forms, as Python functions of torch tensors.
#include "ops/gated_linear_attention.h"
#include "ops/linear_attention.h"
#include "ops/softmax_attention.h"
#include "python/src/tensor_access.h"

namespace tapeformer::python {
namespace {

using Object = nb::handle;

void linear_step(int threads, Object q, Object k, Object v, Object kv, Object key_sum, int feature_map,
                 double eps, Object out) {
  const LinearAttentionState state{read_tensor(kv, "state.kv"), read_tensor(key_sum, "state.key_sum")};
  const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v"),
               result = read_new_tensor(out, "out");
  check_dtypes(tq, {{"k", tk}, {"v", tv}}, {{"state.kv", state.kv}, {"state.key_sum", state.key_sum}});
  const ComputeScope compute(threads, tq);
  linear_attention_step(tq, tk, tv, state, result,
                        {.feature_map = static_cast<FeatureMap>(feature_map), .eps = eps});
}

// Returns the number of tokens in the cache after the step.
int64_t softmax_step(int threads, Object q, Object k, Object v, Object keys, Object values, int64_t length,
                     double scale, int64_t before, Object out) {
  KeyValueCache cache{read_tensor(keys, "state.keys"), read_tensor(values, "state.values"), length};
  cache.pattern.window = {.block_size = 1, .before = before, .after = KeyWindow::kUnlimited};
  const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v"),
               result = read_new_tensor(out, "out");
  check_dtypes(tq, {{"k", tk}, {"v", tv}});
  if (cache.keys.dtype() != DType::bfloat16) check_dtypes(tq, {{"state.keys", cache.keys}});
  check_dtypes(cache.keys, {{"state.values", cache.values}});
  const ComputeScope compute(threads, tq);
  softmax_attention_step(tq, tk, tv, cache, result, scale);
  return cache.length;
}

void gated_step(int threads, Object q, Object k, Object v, const OptionalObject& log_decay,
                const OptionalObject& erase, const OptionalObject& beta, Object state, Object out) {
  const GatedTokenOptions options{read_tensor(log_decay, "log_decay"), read_tensor(erase, "erase"),
                                  read_tensor(beta, "beta")};
  const Tensor tq = read_tensor(q, "q"), tk = read_tensor(k, "k"), tv = read_tensor(v, "v"),
               s = read_tensor(state, "state"), result = read_new_tensor(out, "out");
  check_dtypes(tq, {{"k", tk}, {"v", tv}, {"erase", options.erase}},
               {{"log_decay", options.log_decay}, {"beta", options.beta}, {"state", s}});
  const ComputeScope compute(threads, tq);
  gated_linear_attention_step(tq, tk, tv, options, s, result);
}

}  // namespace

void bind_steps(nb::module_& m) {
  m.def("linear_step", &linear_step);
  m.def("softmax_step", &softmax_step);
  add_function(m, "gated_step", gated_step);
}

}  // namespace tapeformer::python
