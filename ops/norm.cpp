#include "ops/norm.h"

#include "autograd/results.h"
#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/norm.h"
#include "ops/linear.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

void check_arguments(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_defined(op, "the input", x, "the weight", weight, "the bias", bias);
  check(x.rank() >= 1 && weight.shape() == Shape{x.size(-1)} && bias.shape() == weight.shape(), op, "input ",
        x.shape(), " does not match weight ", weight.shape(), " and bias ", bias.shape());
  check(x.dtype() == weight.dtype() && x.dtype() == bias.dtype(), op, "input is ", name_of(x.dtype()),
        ", weight ", name_of(weight.dtype()), ", bias ", name_of(bias.dtype()));
  check(x.dtype() != DType::bfloat16, op, "needs float32 or float64, not bfloat16");
}

// The tensors that the backward pass of a layer norm reads.
struct SavedNorm {
  Tensor normalized;   // (…, dim)
  Tensor inverse_std;  // (rows,)
  Tensor weight;
  DropoutMask dropout;
  DType branch_dtype;  // dtype of the residual branch, or of x if there is no branch
};

// Returns the gradients of x, the weight, the bias and, if `has_branch` is true, the branch. g is the
// gradient of the result, and g_rounded is the gradient of the bfloat16 copy of the result. Either g or
// g_rounded may be undefined.
Gradients compute_gradients(const char* op, const SavedNorm& saved, const Tensor& g, const Tensor& g_rounded,
                            bool has_branch, NeededGradients needs) {
  const Tensor& x = saved.normalized;
  const Tensor gx = Tensor::empty_like(x), gweight = Tensor::empty_like(saved.weight),
               gbias = Tensor::empty_like(saved.weight);
  const bool separate =
      has_branch && needs[3] && (saved.dropout.is_active() || saved.branch_dtype != x.dtype());
  const Tensor gbranch = Tensor::empty(separate ? x.shape() : Shape{0}, saved.branch_dtype, x.device());
  const Tensor dense_g = g.defined() ? make_contiguous(g) : g;
  const Tensor dense_rounded = g_rounded.defined() ? make_contiguous(g_rounded) : g_rounded;
  dispatch_floating(op, gbranch, [&]<class B>(auto backend) {
    using T = Compute<B>;
    layer_norm_backward(backend, saved.inverse_std.numel(), x.size(-1), get_data_or_null<T>(dense_g),
                        get_data_or_null<BFloat16>(dense_rounded), x.data<T>(), saved.inverse_std.data<T>(),
                        saved.weight.data<T>(), saved.dropout, gx.data<T>(),
                        separate ? gbranch.data<B>() : nullptr, gweight.data<T>(), gbias.data<T>());
  });
  if (!has_branch) return {gx, gweight, gbias};
  return {gx, gweight, gbias, separate ? gbranch : gx};
}

// Implements all functions of ops/norm.h. `branch_input` is undefined if there is no residual branch.
// `operand` is the dtype of the second tensor of the result.
LayerNormResult normalize(const char* op, const Tensor& input, const Tensor& branch_input,
                          const Tensor& weight, const Tensor& bias, const DropoutMask& dropout, double eps,
                          DType operand) {
  check_arguments(op, input, weight, bias);
  const bool has_branch = branch_input.defined();
  const Tensor x = contiguous(input);
  const Tensor branch = has_branch ? contiguous(branch_input) : Tensor{};
  const std::vector<Tensor> inputs =
      has_branch ? std::vector{x, weight, bias, branch} : std::vector{x, weight, bias};
  const int64_t dim = x.size(-1), rows = x.numel() / std::max<int64_t>(dim, 1);
  const Tensor y = Tensor::empty_like(x);
  const Tensor rounded = operand == x.dtype() ? Tensor{} : Tensor::empty(x.shape(), operand, x.device());
  const bool keep = is_recording() && (requires_grad(x) || requires_grad(weight) || requires_grad(bias) ||
                                       requires_grad(branch));
  const Tensor normalized = keep ? Tensor::empty_like(x) : Tensor{};
  const Tensor inverse_std = keep ? Tensor::empty({rows}, x.dtype(), x.device()) : Tensor{};
  const Tensor& stored = has_branch ? branch : x;
  dispatch_floating(op, stored, [&]<class B>(auto backend) {
    using T = Compute<B>;
    layer_norm_forward(backend, rows, dim, x.data<T>(), get_data_or_null<B>(branch), dropout,
                       weight.data<T>(), bias.data<T>(), eps, y.data<T>(), get_data_or_null<T>(normalized),
                       get_data_or_null<T>(inverse_std), get_data_or_null<BFloat16>(rounded));
  });
  const SavedNorm saved{normalized, inverse_std, detach(weight), dropout, stored.dtype()};
  if (!rounded.defined()) {
    record(op, y, inputs, [=](const Tensor& g, NeededGradients needs) {
      return compute_gradients(op, saved, g, {}, has_branch, needs);
    });
    return {y, y};
  }
  record_results(op, {y, rounded}, inputs, [=](const Gradients& g, NeededGradients needs) {
    return compute_gradients(op, saved, g[0], g[1], has_branch, needs);
  });
  return {y, rounded};
}

void check_branch(const char* op, const Tensor& x, const Tensor& branch) {
  check_defined(op, "the input", x, "the branch", branch);
  check(x.shape() == branch.shape() && x.dtype() == get_compute_dtype(branch.dtype()), op, "input ",
        name_of(x.dtype()), " ", x.shape(), " and branch ", name_of(branch.dtype()), " ", branch.shape(),
        " differ");
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_defined("layer_norm", "the input", x);
  return normalize("layer_norm", x, {}, weight, bias, {}, eps, x.dtype()).result;
}

LayerNormResult layer_norm_with_operand(const Tensor& x, const Tensor& weight, const Tensor& bias,
                                        double eps) {
  check_defined("layer_norm", "the input", x);
  return normalize("layer_norm", x, {}, weight, bias, {}, eps, get_operand_dtype(x));
}

Tensor residual_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                           const DropoutMask& dropout, double eps) {
  check_branch("residual_layer_norm", x, branch);
  return normalize("residual_layer_norm", x, branch, weight, bias, dropout, eps, x.dtype()).result;
}

LayerNormResult residual_layer_norm_with_operand(const Tensor& x, const Tensor& branch, const Tensor& weight,
                                                 const Tensor& bias, const DropoutMask& dropout, double eps) {
  check_branch("residual_layer_norm", x, branch);
  return normalize("residual_layer_norm", x, branch, weight, bias, dropout, eps, get_operand_dtype(x));
}

}  // namespace tapeformer
