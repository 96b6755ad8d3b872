// Gated linear attention, token by token from the formula of ops/gated_linear_attention.h. The gradient is
// the gradient of these ops. Tests compare gated_linear_attention() with this reference.
#pragma once

#include "ops/elementwise.h"
#include "ops/gated_linear_attention.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace tapeformer {

// Processes one token of one sequence. q, k and `erase` are (heads, dim), v is (heads, value_dim), `decay` is
// (heads, dim) or (heads, 1), beta is (heads, 1), and `state` is (heads, dim, value_dim). `decay`, `erase`
// and beta can be undefined. Updates `state` and returns (heads, value_dim).
inline Tensor step_gated_linear_attention_reference(const Tensor& q, const Tensor& k, const Tensor& v,
                                                    const Tensor& decay, const Tensor& erase,
                                                    const Tensor& beta, Tensor& state) {
  const auto as_row = [](const Tensor& x) { return reshape(x, {x.size(0), 1, x.size(1)}); };
  const auto as_column = [](const Tensor& x) { return reshape(x, {x.size(0), x.size(1), 1}); };
  if (decay.defined()) state = mul(as_column(decay), state);
  Tensor written = as_row(v);
  if (erase.defined()) written = sub(written, matmul(as_row(erase), state));
  if (beta.defined()) written = mul(as_column(beta), written);
  state = add(state, matmul(as_column(k), written));
  return reshape(matmul(as_row(q), state), v.shape());
}

// Returns gated_linear_attention() of float64 tensors on the CPU.
inline GatedLinearAttentionResult gated_linear_attention_reference(
    const Tensor& q, const Tensor& k, const Tensor& v, const GatedLinearAttentionOptions& o = {}) {
  const int64_t batch = q.size(0), length = q.size(1), heads = q.size(2), dim = q.size(3);
  const auto token = [](const Tensor& x, int64_t n, int64_t t) {
    const Tensor row = slice(slice(x, 0, n, n + 1), 1, t, t + 1);
    return reshape(row, {x.size(2), x.numel() / (x.size(0) * x.size(1) * x.size(2))});
  };
  std::vector<Tensor> results, final_states;
  for (int64_t n = 0; n < batch; ++n) {
    const int64_t valid = o.lengths.defined() ? o.lengths.data<int64_t>()[n] : length;
    Tensor state = o.initial_state.defined()
                       ? reshape(slice(o.initial_state, 0, n, n + 1), {heads, dim, v.size(3)})
                       : Tensor::zeros({heads, dim, v.size(3)}, DType::float64);
    std::vector<Tensor> rows(static_cast<size_t>(length), Tensor::zeros({heads, v.size(3)}, DType::float64));
    for (int64_t i = 0; i < valid; ++i) {
      const int64_t t = o.reverse ? valid - 1 - i : i;
      Tensor decay;
      if (o.log_decay.defined())
        decay = exp(o.log_decay.rank() == 1 ? reshape(o.log_decay, {heads, 1}) : token(o.log_decay, n, t));
      const int64_t start = o.reverse ? t + 1 : t;
      if (o.boundaries.defined() && start < length && o.boundaries.data<int64_t>()[n * length + start] != 0)
        decay = Tensor::zeros({heads, 1}, DType::float64);
      const auto optional = [&](const Tensor& x) { return x.defined() ? token(x, n, t) : x; };
      rows[static_cast<size_t>(t)] = step_gated_linear_attention_reference(
          token(q, n, t), token(k, n, t), token(v, n, t), decay, optional(o.erase), optional(o.beta), state);
    }
    results.push_back(length > 0 ? stack(rows, 0) : Tensor::zeros({0, heads, v.size(3)}, DType::float64));
    final_states.push_back(state);
  }
  return {stack(results, 0), stack(final_states, 0)};
}

}  // namespace tapeformer
