// Inputs for tests of gated linear attention, and the results and gradients that they give.
#pragma once

#include <string>
#include <vector>

#include "ops/elementwise.h"
#include "ops/gated_linear_attention.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"

namespace tapeformer::test {

enum class TestDecay { none, fixed, head, channel };

struct GatedCase {
  AttentionSizes size;
  TestDecay decay = TestDecay::head;
  bool erases = true, has_state = false, reverse = false, has_lengths = false, has_boundaries = false,
       has_beta = false;
  double strength = 1;  // mean of -g
};

inline std::string describe(const GatedCase& c) {
  return concat_text(describe(c.size), ", decay ", static_cast<int>(c.decay), ", erases ", c.erases,
                     ", state ", c.has_state, ", reverse ", c.reverse, ", lengths ", c.has_lengths,
                     ", boundaries ", c.has_boundaries, ", beta ", c.has_beta, ", strength ", c.strength);
}

struct GatedTestInputs {
  Tensor q, k, v;
  GatedLinearAttentionOptions options;

  // Returns the differentiable tensors that are defined: q, k, v, log decay, erase keys, β, initial state.
  std::vector<Tensor> list() const {
    std::vector<Tensor> all{q, k, v};
    for (const Tensor& x : {options.log_decay, options.erase, options.beta, options.initial_state})
      if (x.defined()) all.push_back(x);
    return all;
  }
  // Returns these inputs with the tensors of list() replaced.
  GatedTestInputs replace(const std::vector<Tensor>& tensors) const {
    GatedTestInputs out{tensors[0], tensors[1], tensors[2], options};
    size_t next = 3;
    GatedLinearAttentionOptions& o = out.options;
    for (Tensor* x : {&o.log_decay, &o.erase, &o.beta, &o.initial_state})
      if (x->defined()) *x = tensors[next++];
    return out;
  }
  // Returns the inputs on a device. Log decays, β and states have the compute dtype of `dtype`.
  GatedTestInputs to(DType dtype, Device device = kCpu) const {
    GatedTestInputs out = *this;
    GatedLinearAttentionOptions& o = out.options;
    for (Tensor* x : {&out.q, &out.k, &out.v, &o.erase})
      if (x->defined()) *x = x->to(dtype).to(device);
    for (Tensor* x : {&o.log_decay, &o.beta, &o.initial_state})
      if (x->defined()) *x = x->to(get_compute_dtype(dtype)).to(device);
    for (Tensor* x : {&o.lengths, &o.boundaries})
      if (x->defined()) *x = x->to(device);
    return out;
  }
};

// Returns float64 inputs with keys of length 1 and shorter erase keys, for which the states are bounded.
inline GatedTestInputs make_gated_inputs(const GatedCase& c) {
  const AttentionSizes& s = c.size;
  const auto normalized = [](const Tensor& x) {
    const Tensor squares = sum(square(x), -1, true);
    return div(x, sqrt(add(squares, 1e-6)));
  };
  const AttentionInputs qkv = attention_inputs(s);
  GatedTestInputs in{normalized(qkv.q), normalized(qkv.k), qkv.v, {}};
  const Shape per_head{s.batch, s.query_length, s.heads};
  if (c.decay == TestDecay::fixed) in.options.log_decay = uniform({s.heads}, -2 * c.strength, 0, 7);
  if (c.decay == TestDecay::head) in.options.log_decay = uniform(per_head, -2 * c.strength, 0, 7);
  if (c.decay == TestDecay::channel) in.options.log_decay = uniform(in.q.shape(), -2 * c.strength, 0, 7);
  if (c.erases) in.options.erase = mul(in.k, uniform({s.batch, s.query_length, s.heads, 1}, 0, 1, 8));
  if (c.has_beta) {
    in.options.beta = uniform(per_head, 0, 1, 10);
    in.options.beta.data<double>()[0] = 0;
  }
  if (c.has_state) in.options.initial_state = normal({s.batch, s.heads, s.dim, s.value_dim}, 9);
  in.options.reverse = c.reverse;
  if (c.has_lengths) {
    in.options.lengths = Tensor::zeros({s.batch}, DType::int64);
    const int64_t lengths[] = {s.query_length - 1, s.query_length / 2, 0};
    for (int64_t n = 0; n < s.batch; ++n) in.options.lengths.data<int64_t>()[n] = lengths[n % 3];
  }
  if (c.has_boundaries) {
    in.options.boundaries = Tensor::zeros({s.batch, s.query_length}, DType::int64);
    for (int64_t n = 0; n < s.batch; ++n)
      for (int64_t t = 3 + n % 2; t < s.query_length; t += 41)
        in.options.boundaries.data<int64_t>()[n * s.query_length + t] = 1;
  }
  return in;
}

struct GatedRun {
  DType dtype = DType::float64;
  Device device = kCpu;
  bool uses_final_state = true;  // whether the loss depends on the final state
  int differentiable = -1;       // if not negative, only this tensor of list() requires a gradient
};

// Returns out, the final state and the gradients of the inputs for fixed random gradients of the results.
// All are on the CPU.
inline std::vector<Tensor> compute_gated(decltype(gated_linear_attention)* attention,
                                         const GatedTestInputs& in, const GatedRun& run = {}) {
  const GatedTestInputs converted = in.to(run.dtype, run.device);
  std::vector<Tensor> leaves;
  for (const Tensor& x : converted.list()) {
    leaves.push_back(x.alias());
    if (run.differentiable < 0 || run.differentiable + 1 == static_cast<int>(leaves.size()))
      set_requires_grad(leaves.back());
  }
  const GatedTestInputs inputs = converted.replace(leaves);
  const GatedLinearAttentionResult result = attention(inputs.q, inputs.k, inputs.v, inputs.options);
  const DType compute = get_compute_dtype(run.dtype);
  const Tensor g = normal(result.out.shape(), 21).to(run.dtype).to(compute).to(run.device),
               gstate = normal(result.final_state.shape(), 22).to(compute).to(run.device);
  Tensor loss = sum(mul(cast(result.out, compute), g));
  if (run.uses_final_state) loss = add(loss, sum(mul(result.final_state, gstate)));
  backward(loss);
  std::vector<Tensor> all{detach(result.out).to(kCpu), detach(result.final_state).to(kCpu)};
  for (const Tensor& leaf : leaves)
    if (requires_grad(leaf)) all.push_back(gradient(leaf).to(kCpu));
  return all;
}

// Returns token t of x (batch, length, …). Returns tensors that are undefined or have no tokens unchanged.
inline Tensor view_token(const Tensor& x, int64_t t) {
  if (!x.defined() || x.rank() == 1) return x;
  Shape shape{x.size(0)}, strides{x.strides()[0]};
  for (int i = 2; i < x.rank(); ++i) {
    shape.append(x.size(i));
    strides.append(x.strides()[i]);
  }
  return x.view(shape, strides, t * x.strides()[1]);
}

// Processes the tokens one after another. `state` is updated.
inline void run_gated_steps(const GatedTestInputs& in, const Tensor& state, const Tensor& out) {
  const GatedLinearAttentionOptions& o = in.options;
  for (int64_t t = 0; t < in.q.size(1); ++t)
    gated_linear_attention_step(view_token(in.q, t), view_token(in.k, t), view_token(in.v, t),
                                {.log_decay = view_token(o.log_decay, t),
                                 .erase = view_token(o.erase, t),
                                 .beta = view_token(o.beta, t)},
                                state, view_token(out, t));
}

}  // namespace tapeformer::test
