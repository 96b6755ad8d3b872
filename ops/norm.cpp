#include "ops/norm.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/norm.h"
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

// Implements layer_norm() and residual_layer_norm(). If `branch_input` is undefined, there is no residual
// branch.
Tensor normalize(const char* op, const Tensor& input, const Tensor& branch_input, const Tensor& weight,
                 const Tensor& bias, const DropoutMask& dropout, double eps) {
  check_arguments(op, input, weight, bias);
  const bool has_branch = branch_input.defined();
  const Tensor x = contiguous(input);
  const Tensor branch = has_branch ? contiguous(branch_input) : Tensor{};
  const std::vector<Tensor> inputs =
      has_branch ? std::vector{x, weight, bias, branch} : std::vector{x, weight, bias};
  const int64_t dim = x.size(-1), rows = x.numel() / std::max<int64_t>(dim, 1);
  const Tensor y = Tensor::empty_like(x);
  const bool keep = recording() && (requires_grad(x) || requires_grad(weight) || requires_grad(bias) ||
                                    requires_grad(branch));
  const Tensor normalized = keep ? Tensor::empty_like(x) : Tensor{};
  const Tensor inverse_std = keep ? Tensor::empty({rows}, x.dtype(), x.device()) : Tensor{};
  const Tensor& stored = has_branch ? branch : x;
  dispatch_stored(op, stored, [&]<class B>(auto backend) {
    using T = Compute<B>;
    layer_norm_forward(backend, rows, dim, x.data<T>(), data_or_null<B>(branch), dropout, weight.data<T>(),
                       bias.data<T>(), eps, y.data<T>(), data_or_null<T>(normalized),
                       data_or_null<T>(inverse_std), nullptr);
  });
  return record(
      op, y, inputs,
      [=, weight = detach(weight), branch_dtype = stored.dtype()](const Tensor& gradient, Needs needs) {
        const Tensor g = dense(gradient);
        const Tensor gx = Tensor::empty_like(normalized), gweight = Tensor::empty_like(weight),
                     gbias = Tensor::empty_like(weight);
        const bool separate = has_branch && needs[3] && (dropout.active() || branch_dtype != g.dtype());
        const Tensor gbranch = Tensor::empty(separate ? g.shape() : Shape{0}, branch_dtype, g.device());
        dispatch_stored(op, gbranch, [&]<class B>(auto backend) {
          using T = Compute<B>;
          layer_norm_backward(backend, rows, dim, g.data<T>(), normalized.data<T>(), inverse_std.data<T>(),
                              weight.data<T>(), dropout, gx.data<T>(), separate ? gbranch.data<B>() : nullptr,
                              gweight.data<T>(), gbias.data<T>());
        });
        const Tensor& branch_gradient = separate ? gbranch : gx;
        return has_branch ? Gradients{gx, gweight, gbias, branch_gradient} : Gradients{gx, gweight, gbias};
      });
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  return normalize("layer_norm", x, {}, weight, bias, {}, eps);
}

Tensor residual_layer_norm(const Tensor& x, const Tensor& branch, const Tensor& weight, const Tensor& bias,
                           const DropoutMask& dropout, double eps) {
  check_defined("residual_layer_norm", "the input", x, "the branch", branch);
  check(x.shape() == branch.shape() && x.dtype() == compute_dtype(branch.dtype()), "residual_layer_norm",
        "input ", name_of(x.dtype()), " ", x.shape(), " and branch ", name_of(branch.dtype()), " ",
        branch.shape(), " differ");
  return normalize("residual_layer_norm", x, branch, weight, bias, dropout, eps);
}

}  // namespace tapeformer
