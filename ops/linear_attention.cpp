// ops/reference/linear_attention.h computes linear_attention() and its gradient in plain loops. The kernels
// are in ops/cpu/linear_attention.cpp and ops/cuda/linear_attention.cu.
#include "ops/linear_attention.h"

#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "linear_attention";
constexpr const char* kLinearStep = "linear_attention_step";

LinearAttentionShape make_shape(const Tensor& q, const Tensor& k, const Tensor& v,
                                const LinearAttentionOptions& options) {
  auto shape = make_attention_shape<LinearAttentionShape>(q, k, v);
  shape.causal = options.causal;
  shape.feature_map = options.feature_map;
  shape.eps = options.eps;
  shape.normalized = options.normalized;
  return shape;
}

// The inputs of the kernels. The last dimensions of q, k and v are contiguous.
struct LinearOperands {
  Tensor q, k, v, lengths;
  LinearAttentionShape shape;  // without pointers to data
};

// Throws ShapeError for invalid inputs and options.
LinearOperands prepare_operands(const Tensor& q, const Tensor& k, const Tensor& v,
                                const LinearAttentionOptions& options) {
  check_attention_inputs(kOp, q, k, v);
  check(!options.causal || q.size(1) == k.size(1), kOp,
        "the causal form needs queries and keys of equal length, not ", q.shape(), " and ", k.shape());
  check(options.eps > 0, kOp, "eps must be positive, not ", options.eps);
  check(!options.normalized || options.feature_map != FeatureMap::identity, kOp,
        "the feature map identity needs normalized = false");
  return {make_features_contiguous(q), make_features_contiguous(k), make_features_contiguous(v),
          prepare_key_lengths(kOp, options.key_lengths, k), make_shape(q, k, v, options)};
}

void run_forward(const LinearOperands& x, const AttentionResult& result) {
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    linear_attention_forward(backend, with_key_lengths(x.shape, x.lengths), get_attention_rows<const T>(x.q),
                             get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                             result.out.data<T>(), result.statistics.data<Compute<T>>());
  });
}

void run_backward(const LinearOperands& x, const AttentionResult& result, const Tensor& gradient,
                  const Gradients& gradients) {
  const Tensor g = make_features_contiguous(gradient);
  dispatch_floating(kOp, x.q, [&]<class T>(auto backend) {
    linear_attention_backward(backend, with_key_lengths(x.shape, x.lengths), get_attention_rows<const T>(x.q),
                              get_attention_rows<const T>(x.k), get_attention_rows<const T>(x.v),
                              result.out.data<T>(), result.statistics.data<Compute<T>>(),
                              get_attention_rows<const T>(g), get_gradient_rows<T>(gradients));
  });
}

}  // namespace

Tensor linear_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                        const LinearAttentionOptions& options) {
  const LinearOperands x = prepare_operands(query, key, value, options);
  const AttentionResult result{allocate_attention_result(x.q, x.v), allocate_query_statistics(x.q)};
  run_forward(x, result);
  return record(kOp, result.out, {&x.q, &x.k, &x.v},
                [x = LinearOperands{detach(x.q), detach(x.k), detach(x.v), x.lengths, x.shape},
                 result = AttentionResult{detach(result.out), result.statistics}](const Tensor& gradient,
                                                                                  NeededGradients needs) {
                  const Gradients gradients = allocate_attention_gradients(needs, x.q, x.k, x.v);
                  run_backward(x, result, gradient, gradients);
                  return gradients;
                });
}

void linear_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const LinearAttentionOptions& options, const AttentionResult& result) {
  const LinearOperands x = prepare_operands(q, k, v, options);
  check_attention_result(kOp, result, q, v);
  run_forward(x, result);
}

void linear_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionOptions& options, const AttentionResult& result,
                                    const Tensor& gradient, const Gradients& gradients) {
  const LinearOperands x = prepare_operands(q, k, v, options);
  check_attention_result(kOp, result, q, v);
  check_gradient(kOp, gradient, result.out);
  check_gradients(kOp, gradients, {&q, &k, &v});
  run_backward(x, result, gradient, gradients);
}

LinearAttentionState make_linear_attention_state(int64_t batch, int64_t heads, int64_t dim, int64_t value_dim,
                                                 DType dtype, Device device) {
  return {Tensor::zeros({batch, heads, dim, value_dim}, dtype, device),
          Tensor::zeros({batch, heads, dim}, dtype, device)};
}

void linear_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                           const LinearAttentionState& state, const Tensor& out,
                           const LinearAttentionOptions& options, const NumeratorFeatures& numerator) {
  check_attention_step(kLinearStep, q, k, v, out, {.bfloat16_result = true});
  check(options.normalized && options.feature_map != FeatureMap::identity, kLinearStep,
        "results have denominators: expected normalized = true and another feature map than identity");
  check(numerator.q.defined() == numerator.k.defined(), kLinearStep,
        "expected both features of the numerator or none, got one");
  for (const Tensor* x : {&numerator.q, &numerator.k}) {
    if (!x->defined()) continue;
    check(x->shape() == q.shape() && x->dtype() == q.dtype() && x->device() == q.device() &&
              last_dimension_is_contiguous(*x),
          kLinearStep, "expected features of the numerator like q, ", name_of(q.dtype()), " ", q.shape(),
          " on ", q.device().to_string(), " with a contiguous last dimension, got ", name_of(x->dtype()), " ",
          x->shape(), " on ", x->device().to_string());
  }
  check(q.dtype() != DType::bfloat16, kLinearStep, "q, k and v must be float32 or float64, not bfloat16");
  LinearAttentionShape shape;
  shape.batch = q.size(0);
  shape.heads = q.size(1);
  shape.dim = q.size(2);
  shape.value_dim = v.size(2);
  shape.feature_map = options.feature_map;
  shape.eps = options.eps;
  check(state.kv.shape() == Shape{shape.batch, shape.heads, shape.dim, shape.value_dim} &&
            state.key_sum.shape() == q.shape() && state.kv.dtype() == q.dtype() &&
            state.key_sum.dtype() == q.dtype() && state.kv.is_contiguous() && state.key_sum.is_contiguous(),
        kLinearStep, "state ", name_of(state.kv.dtype()), " ", state.kv.shape(), " and ",
        state.key_sum.shape(), " does not match k ", name_of(k.dtype()), " ", k.shape(), " and v ",
        v.shape());
  check_on_device_of_q(kLinearStep, "the state", {&state.kv, &state.key_sum}, q);
  dispatch_floating(kLinearStep, out, [&]<class O>(auto backend) {
    using T = Compute<O>;
    const auto optional_rows = [](const Tensor& x) {
      return x.defined() ? get_attention_rows<const T>(x) : AttentionRows<const T>{};
    };
    linear_attention_step(backend, shape, get_attention_rows<const T>(q), get_attention_rows<const T>(k),
                          get_attention_rows<const T>(v), optional_rows(numerator.q),
                          optional_rows(numerator.k), state.kv.data<T>(), state.key_sum.data<T>(),
                          get_attention_rows<O>(out));
  });
}

}  // namespace tapeformer
