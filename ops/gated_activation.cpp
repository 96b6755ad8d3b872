#include "ops/gated_activation.h"

#include <algorithm>

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/gated_activation.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "gated_activation";

GatedActivationShape make_shape(const Tensor& x, Activation activation) {
  const int64_t dim = x.size(-1) / 2;
  return {x.numel() / std::max<int64_t>(2 * dim, 1), dim, activation};
}

Shape check_and_halve(const Tensor& x) {
  check_defined(kOp, "x", x);
  check(x.rank() >= 1 && x.size(-1) % 2 == 0, kOp, "the last dimension of ", x.shape(), " must be even");
  Shape result = x.shape();
  result[-1] /= 2;
  return result;
}

}  // namespace

Tensor gated_activation(const Tensor& input, Activation activation, const DropoutMask& dropout) {
  const Shape result = check_and_halve(input);
  const Tensor y = Tensor::empty(result, input.dtype(), input.device());
  const Tensor x = contiguous(input);
  const GatedActivationShape shape = make_shape(x, activation);
  dispatch_floating(kOp, x, [&]<class T>(auto backend) {
    gated_activation_forward(backend, shape, x.data<T>(), dropout, y.data<T>());
  });
  return record(kOp, y, {&x}, [x = detach(x), shape, dropout](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient), gx = Tensor::empty_like(x);
    dispatch_floating(kOp, x, [&]<class T>(auto backend) {
      gated_activation_backward(backend, shape, g.data<T>(), x.data<T>(), dropout, gx.data<T>());
    });
    return Gradients{gx};
  });
}

void gated_activation_into(const Tensor& x, Activation activation, const Tensor& out) {
  check_defined(kOp, "out", out);
  const Shape result = check_and_halve(x);
  check(out.shape() == result && out.dtype() == x.dtype() && x.is_contiguous() && out.is_contiguous(), kOp,
        "out ", name_of(out.dtype()), " ", out.shape(), " does not match x ", name_of(x.dtype()), " ",
        x.shape());
  dispatch_floating(kOp, x, [&]<class T>(auto backend) {
    gated_activation_forward(backend, make_shape(x, activation), x.data<T>(), DropoutMask{}, out.data<T>());
  });
}

}  // namespace tapeformer
