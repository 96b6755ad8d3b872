// ops/reference/gated_linear_attention.h computes gated_linear_attention() token by token. The kernels are in
// ops/cpu/gated_linear_attention.cpp and ops/cuda/gated_linear_attention.cu.
#include "ops/gated_linear_attention.h"

#include <algorithm>
#include <array>
#include <limits>

#include "autograd/results.h"
#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/kernels/gated_linear_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "gated_linear_attention";
constexpr const char* kGatedStep = "gated_linear_attention_step";

// The inputs of the op with contiguous last dimensions, and log decays (batch, length, heads, decay_dim), or
// the gradients of these inputs.
struct GatedInputs {
  Tensor q, k, v, log_decay, erase, beta, initial_state, lengths;

  static constexpr std::array<Tensor GatedInputs::*, 7> kDifferentiable{&GatedInputs::q,
                                                                        &GatedInputs::k,
                                                                        &GatedInputs::v,
                                                                        &GatedInputs::log_decay,
                                                                        &GatedInputs::erase,
                                                                        &GatedInputs::beta,
                                                                        &GatedInputs::initial_state};

  GatedLinearAttentionShape make_shape(bool reverse) const {
    return {.batch = q.size(0),
            .length = q.size(1),
            .heads = q.size(2),
            .dim = q.size(3),
            .value_dim = v.size(3),
            .decay_dim = log_decay.defined() ? log_decay.size(3) : 1,
            .reverse = reverse,
            .lengths = get_data_or_null<int64_t>(lengths)};
  }
  template <class T>
  GatedLinearAttentionInputs<T> make_rows() const {
    return {.q = get_attention_rows<const T>(q),
            .k = get_attention_rows<const T>(k),
            .v = get_attention_rows<const T>(v),
            .erase = get_optional_rows<const T>(erase),
            .log_decay = get_optional_rows<const Compute<T>>(log_decay),
            .beta = get_optional_rows<const Compute<T>>(beta),
            .initial_state = get_data_or_null<Compute<T>>(initial_state)};
  }
  template <class T>
  GatedLinearAttentionGradients<T> make_gradient_rows() const {
    return {.gq = get_optional_rows<T>(q),
            .gk = get_optional_rows<T>(k),
            .gv = get_optional_rows<T>(v),
            .gerase = get_optional_rows<T>(erase),
            .glog_decay = get_optional_rows<Compute<T>>(log_decay),
            .gbeta = get_optional_rows<Compute<T>>(beta),
            .ginitial_state = get_data_or_null<Compute<T>>(initial_state)};
  }
  std::vector<Tensor> list_defined() const {
    std::vector<Tensor> list;
    for (const auto member : kDifferentiable)
      if ((this->*member).defined()) list.push_back(this->*member);
    return list;
  }
  GatedInputs detached() const {
    GatedInputs copy = *this;
    for (const auto member : kDifferentiable)
      if ((copy.*member).defined()) copy.*member = detach(copy.*member);
    return copy;
  }

  template <class T>
  static AttentionRows<T> get_optional_rows(const Tensor& x) {
    return x.defined() ? get_attention_rows<T>(x) : AttentionRows<T>{};
  }
};

// Returns log decays (batch, length, heads, 1 or dim). For the token of each sequence in `boundaries` that is
// processed first, they are -infinity.
Tensor prepare_log_decay(const Tensor& q, const GatedLinearAttentionOptions& options) {
  const int64_t batch = q.size(0), length = q.size(1), heads = q.size(2);
  const DType dtype = get_compute_dtype(q.dtype());
  Tensor decay = options.log_decay;
  if (decay.defined()) {
    const Shape shape = decay.shape();
    check(shape == Shape{heads} || shape == Shape{batch, length, heads} || shape == q.shape(), kOp,
          "log decays ", shape, " do not match q ", q.shape(),
          ": expected (batch, length, heads), (batch, length, heads, dim) or (heads,)");
    check(decay.dtype() == dtype && decay.device() == q.device(), kOp, "log decays are ",
          name_of(decay.dtype()), " on ", decay.device().to_string(), ", expected ", name_of(dtype), " on ",
          q.device().to_string());
    // The sum with zeros repeats the decays of the heads, and adds up their gradients.
    if (shape == Shape{heads})
      decay = add(Tensor::zeros({batch, length, heads, 1}, dtype, q.device()), reshape(decay, {heads, 1}));
    else if (shape.rank() == 3)
      decay = reshape(decay, {batch, length, heads, 1});
  }
  if (options.boundaries.defined()) {
    check(options.boundaries.shape() == Shape{batch, length}, kOp, "boundaries ", options.boundaries.shape(),
          " do not match q ", q.shape(), ": expected (batch, length)");
    const Tensor resets = Tensor::zeros({2, 1}, dtype, q.device());
    resets.view({1}, {1}, 1).fill(-std::numeric_limits<double>::infinity());
    const Tensor starts = prepare_index(kOp, options.boundaries, 2, q.device());
    Tensor added = reshape(embedding(resets, starts), {batch, length, 1, 1});
    // With `reverse`, the last token of a sequence is the first that is processed.
    if (options.reverse && length > 0) added = pad(slice(added, 1, 1, length), 1, 0, 1);
    decay = add(decay.defined() ? decay : Tensor::zeros({batch, length, heads, 1}, dtype, q.device()), added);
  }
  return decay.defined() ? make_features_contiguous(decay) : decay;
}

// Checks a tensor in the compute dtype of q.
void check_gate(const char* op, const char* name, const Tensor& gate, const Shape& expected,
                const Tensor& q) {
  const DType dtype = get_compute_dtype(q.dtype());
  check(gate.shape() == expected && gate.dtype() == dtype && gate.device() == q.device(), op, name, " is ",
        name_of(gate.dtype()), " ", gate.shape(), " on ", gate.device().to_string(), ", expected ",
        name_of(dtype), " ", expected, " on ", q.device().to_string());
}

void check_erase(const char* op, const Tensor& erase, const Tensor& k) {
  check(erase.shape() == k.shape() && erase.dtype() == k.dtype() && erase.device() == k.device(), op,
        "the erase keys are ", name_of(erase.dtype()), " ", erase.shape(), " on ", erase.device().to_string(),
        ", expected ", name_of(k.dtype()), " ", k.shape(), " on ", k.device().to_string(), " like k");
}

GatedInputs prepare_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                           const GatedLinearAttentionOptions& options) {
  check_attention_inputs(kOp, q, k, v);
  check(q.size(1) == k.size(1), kOp, "queries and keys must have equal lengths, not ", q.shape(), " and ",
        k.shape());
  GatedInputs in;
  in.q = make_features_contiguous(q);
  in.k = make_features_contiguous(k);
  in.v = make_features_contiguous(v);
  in.log_decay = prepare_log_decay(q, options);
  in.lengths = prepare_key_lengths(kOp, options.lengths, k);
  if (options.erase.defined()) {
    check_erase(kOp, options.erase, k);
    in.erase = make_features_contiguous(options.erase);
  }
  if (options.beta.defined()) {
    const Shape expected{q.size(0), q.size(1), q.size(2)};
    check_gate(kOp, "beta", options.beta, expected, q);
    in.beta = make_features_contiguous(reshape(options.beta, {expected[0], expected[1], expected[2], 1}));
  }
  if (options.initial_state.defined()) {
    check_gate(kOp, "the initial state", options.initial_state, {q.size(0), q.size(2), q.size(3), v.size(3)},
               q);
    in.initial_state = contiguous(options.initial_state);
  }
  return in;
}

void run_forward(const GatedInputs& in, bool reverse, const GatedAttentionResult& result) {
  dispatch_floating(kOp, in.q, [&]<class T>(auto backend) {
    gated_linear_attention_forward<T>(backend, in.make_shape(reverse), in.make_rows<T>(),
                                      result.out.data<T>(), get_data_or_null<T>(result.written),
                                      result.final_state.data<Compute<T>>());
  });
}

// Computes the gradients that are defined.
void run_backward(const GatedInputs& in, bool reverse, const Tensor& written, const Gradients& results,
                  GatedInputs gradients) {
  const Tensor g = results[0].defined() ? make_features_contiguous(results[0])
                                        : Tensor::zeros(in.v.shape(), in.v.dtype(), in.v.device());
  const Tensor gstate = results[1].defined() ? make_contiguous(results[1]) : results[1];
  if (!gradients.v.defined() && (in.erase.defined() || in.beta.defined()))
    gradients.v = Tensor::empty_like(in.v);
  dispatch_floating(kOp, in.q, [&]<class T>(auto backend) {
    gated_linear_attention_backward<T>(backend, in.make_shape(reverse), in.make_rows<T>(),
                                       get_data_or_null<T>(written), get_attention_rows<const T>(g),
                                       get_data_or_null<Compute<T>>(gstate),
                                       gradients.make_gradient_rows<T>());
  });
}

// Returns the gradients of the inputs that are defined, in the order of GatedInputs::list_defined().
Gradients compute_gradients(const GatedInputs& in, bool reverse, const Tensor& written,
                            const Gradients& results, NeededGradients needs) {
  GatedInputs gradients;
  Gradients list;
  int index = 0;
  for (const auto member : GatedInputs::kDifferentiable) {
    const Tensor& input = in.*member;
    if (!input.defined()) continue;
    if (needs[index++]) gradients.*member = Tensor::empty(input.shape(), input.dtype(), input.device());
    list.push_back(gradients.*member);
  }
  run_backward(in, reverse, written, results, gradients);
  return list;
}

GatedInputs prepare_plain_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const GatedLinearAttentionOptions& options) {
  const Tensor& decay = options.log_decay;
  check(!options.boundaries.defined(), kOp, "boundaries must be undefined");
  check(!decay.defined() || decay.rank() == 4, kOp, "log decays must have four dimensions");
  GatedLinearAttentionOptions others = options;
  others.log_decay = {};
  GatedInputs in = prepare_inputs(q, k, v, others);
  if (decay.defined()) {
    const int64_t decay_dim = decay.size(3) == q.size(3) ? q.size(3) : 1;
    check_gate(kOp, "the log decay", decay, {q.size(0), q.size(1), q.size(2), decay_dim}, q);
    in.log_decay = make_features_contiguous(decay);
  }
  return in;
}

}  // namespace

GatedLinearAttentionResult gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const GatedLinearAttentionOptions& options) {
  const GatedInputs in = prepare_inputs(q, k, v, options);
  const std::vector<Tensor> inputs = in.list_defined();
  const bool recorded = is_recording() && std::any_of(inputs.begin(), inputs.end(), requires_grad);
  GatedAttentionResult result{
      allocate_attention_result(in.q, in.v),
      Tensor::empty({q.size(0), q.size(2), q.size(3), v.size(3)}, get_compute_dtype(q.dtype()), q.device())};
  if (in.erase.defined() && recorded) result.written = Tensor::empty_like(result.out);
  run_forward(in, options.reverse, result);
  record_results(kOp, {result.out, result.final_state}, inputs,
                 [saved = in.detached(), reverse = options.reverse, written = result.written](
                     const Gradients& results, NeededGradients needs) {
                   return compute_gradients(saved, reverse, written, results, needs);
                 });
  return {result.out, result.final_state};
}

void gated_linear_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const GatedLinearAttentionOptions& options,
                                         const GatedAttentionResult& result) {
  const GatedInputs in = prepare_plain_inputs(q, k, v, options);
  check_result_tensor(kOp, "out", result.out, {q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  check_result_tensor(kOp, "final_state", result.final_state, {q.size(0), q.size(2), q.size(3), v.size(3)},
                      get_compute_dtype(q.dtype()));
  if (result.written.defined())
    check_result_tensor(kOp, "written", result.written, result.out.shape(), q.dtype());
  run_forward(in, options.reverse, result);
}

void gated_linear_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const GatedLinearAttentionOptions& options, const Tensor& written,
                                          const Tensor& gradient, const Tensor& state_gradient,
                                          const Gradients& gradients) {
  const GatedInputs in = prepare_plain_inputs(q, k, v, options);
  const Shape out_shape{q.size(0), q.size(1), q.size(2), v.size(3)};
  check(written.defined() == options.erase.defined(), kOp,
        "`written` must be defined if and only if there are erase keys");
  if (written.defined()) check_result_tensor(kOp, "written", written, out_shape, q.dtype());
  if (gradient.defined())
    check(gradient.shape() == out_shape && gradient.dtype() == q.dtype(), kOp, "the gradient is ",
          name_of(gradient.dtype()), " ", gradient.shape(), ", expected ", name_of(q.dtype()), " ",
          out_shape);
  if (state_gradient.defined())
    check_gate(kOp, "the gradient of the state", state_gradient, {q.size(0), q.size(2), q.size(3), v.size(3)},
               q);
  check_gradients(kOp, gradients,
                  {&q, &k, &v, &options.log_decay, &options.erase, &options.beta, &options.initial_state});
  for (const size_t i : {5, 6})
    check(!gradients[i].defined() || gradients[i].is_contiguous(), kOp,
          "the gradients of beta and of the initial state must be contiguous");
  GatedInputs targets{gradients[0], gradients[1], gradients[2], gradients[3],
                      gradients[4], gradients[5], gradients[6], {}};
  if (targets.beta.defined()) {
    const Shape& shape = targets.beta.shape();
    targets.beta = reshape(targets.beta, {shape[0], shape[1], shape[2], 1});
  }
  run_backward(in, options.reverse, written, {gradient, state_gradient}, targets);
}

void gated_linear_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const GatedTokenOptions& options, const Tensor& state, const Tensor& out) {
  check_attention_step(kGatedStep, q, k, v, out, {.bfloat16_result = true});
  check(q.dtype() != DType::bfloat16, kGatedStep, "q, k and v must be float32 or float64, not bfloat16");
  GatedLinearAttentionShape shape{
      .batch = q.size(0), .length = 1, .heads = q.size(1), .dim = q.size(2), .value_dim = v.size(2)};
  check_gate(kGatedStep, "the state", state, {shape.batch, shape.heads, shape.dim, shape.value_dim}, q);
  check(state.is_contiguous(), kGatedStep, "the state must be contiguous");
  const Tensor &log_decay = options.log_decay, &erase = options.erase, &beta = options.beta;
  if (erase.defined()) {
    check_erase(kGatedStep, erase, k);
    check(last_dimension_is_contiguous(erase), kGatedStep,
          "the last dimension of the erase keys must be contiguous");
  }
  if (beta.defined()) check_gate(kGatedStep, "beta", beta, {shape.batch, shape.heads}, q);
  if (log_decay.defined()) {
    const bool per_channel = log_decay.rank() == 3, fixed = log_decay.rank() == 1;
    check_gate(kGatedStep, "the log decay", log_decay,
               per_channel ? q.shape()
               : fixed     ? Shape{shape.heads}
                           : Shape{shape.batch, shape.heads},
               q);
    check(!per_channel || last_dimension_is_contiguous(log_decay), kGatedStep,
          "the last dimension of the log decay must be contiguous");
    if (per_channel) shape.decay_dim = shape.dim;
  }
  dispatch_floating(kGatedStep, out, [&]<class O>(auto backend) {
    using T = Compute<O>;
    // Returns the rows of a tensor (batch, heads, …) or (heads,).
    const auto gate_rows = [](const Tensor& x) -> AttentionRows<const T> {
      if (!x.defined()) return {};
      const Shape strides = x.strides();
      return x.rank() == 1 ? AttentionRows<const T>{x.data<T>(), 0, 0, strides[0]}
                           : AttentionRows<const T>{x.data<T>(), strides[0], 0, strides[1]};
    };
    const GatedLinearAttentionInputs<T> inputs{.q = get_attention_rows<const T>(q),
                                               .k = get_attention_rows<const T>(k),
                                               .v = get_attention_rows<const T>(v),
                                               .erase = gate_rows(erase),
                                               .log_decay = gate_rows(log_decay),
                                               .beta = gate_rows(beta)};
    gated_linear_attention_step<T, O>(backend, shape, inputs, state.data<T>(), get_attention_rows<O>(out));
  });
}

}  // namespace tapeformer
