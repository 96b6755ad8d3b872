#include "ops/elementwise.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/elementwise.h"
#include "ops/sum.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

template <class Function>
Tensor apply_unary(const char* op, const Tensor& x_any) {
  check_defined(op, "x", x_any);
  const Tensor x = contiguous(x_any);
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    unary_forward<Function>(backend, x.data<T>(), y.data<T>(), x.numel());
  });
  return record(op, y, {&x}, [op, x = detach(x), y = detach(y)](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient);
    const Tensor gx = Tensor::empty_like(x);
    dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
      unary_backward<Function>(backend, g.data<T>(), x.data<T>(), y.data<T>(), gx.data<T>(), x.numel());
    });
    return Gradients{gx};
  });
}

template <class Function>
Tensor apply_binary(const char* op, const Tensor& a_any, const Tensor& b_any) {
  check_defined(op, "a", a_any, "b", b_any);
  check(a_any.dtype() == b_any.dtype(), op, "the operands are ", name_of(a_any.dtype()), " and ",
        name_of(b_any.dtype()), ", expected equal dtypes");
  const Shape shape =
      a_any.shape() == b_any.shape() ? a_any.shape() : broadcast_shapes(op, a_any.shape(), b_any.shape());
  const Tensor a = contiguous(broadcast_to(a_any, shape)), b = contiguous(broadcast_to(b_any, shape));
  const Tensor y = Tensor::empty_like(a);
  dispatch_float_or_double(op, a, [&]<class T>(auto backend) {
    binary_forward<Function>(backend, a.data<T>(), b.data<T>(), y.data<T>(), y.numel());
  });
  return record(op, y, {&a, &b},
                [op, a = detach(a), b = detach(b)](const Tensor& gradient, NeededGradients needs) {
                  const Tensor g = make_contiguous(gradient);
                  Gradients gradients(2);
                  for (int i = 0; i < 2; ++i)
                    if (needs[i]) gradients[static_cast<size_t>(i)] = Tensor::empty_like(a);
                  dispatch_float_or_double(op, a, [&]<class T>(auto backend) {
                    binary_backward<Function>(backend, g.data<T>(), a.data<T>(), b.data<T>(),
                                              needs[0] ? gradients[0].data<T>() : nullptr,
                                              needs[1] ? gradients[1].data<T>() : nullptr, a.numel());
                  });
                  return gradients;
                });
}

// Returns scale * x + offset. The call is not recorded.
Tensor apply_affine(const Tensor& x_any, double scale, double offset) {
  const Tensor x = make_contiguous(x_any);
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double("affine", x, [&]<class T>(auto backend) {
    const T a = static_cast<T>(scale), b = static_cast<T>(offset);
    affine(backend, x.data<T>(), a, b, y.data<T>(), x.numel());
  });
  return y;
}

Tensor apply_mask(const Tensor& x_any, const DropoutMask& mask) {
  const Tensor x = make_contiguous(x_any);
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double("dropout", x, [&]<class T>(auto backend) {
    dropout_forward(backend, x.data<T>(), mask, y.data<T>(), x.numel());
  });
  return y;
}

}  // namespace

// The gradients of a and b are equal to the gradient of the result, so backward needs no kernel. add()
// therefore records its own function instead of the function of apply_binary(), which calls a kernel.
Tensor add(const Tensor& a, const Tensor& b) {
  check_defined("add", "a", a, "b", b);
  if (!(a.shape() == b.shape())) {
    const Shape shape = broadcast_shapes("add", a.shape(), b.shape());
    return add(broadcast_to(a, shape), broadcast_to(b, shape));
  }
  Tensor y;
  {
    const NoGradScope no_grad;
    y = apply_binary<Add>("add", a, b);
  }
  return record("add", y, {&a, &b}, [](const Tensor& g) { return Gradients{g, g}; });
}

Tensor sub(const Tensor& a, const Tensor& b) {
  return apply_binary<Subtract>("sub", a, b);
}
Tensor mul(const Tensor& a, const Tensor& b) {
  return apply_binary<Multiply>("mul", a, b);
}
Tensor div(const Tensor& a, const Tensor& b) {
  return apply_binary<Divide>("div", a, b);
}

Tensor add(const Tensor& a, double b) {
  check_defined("add", "a", a);
  return record("add", apply_affine(a, 1, b), {&a}, [](const Tensor& g) { return Gradients{g}; });
}
Tensor mul(const Tensor& a, double b) {
  check_defined("mul", "a", a);
  return record("mul", apply_affine(a, b, 0), {&a},
                [b](const Tensor& g) { return Gradients{apply_affine(g, b, 0)}; });
}

Tensor neg(const Tensor& x) {
  return apply_unary<Negate>("neg", x);
}
Tensor exp(const Tensor& x) {
  return apply_unary<Exp>("exp", x);
}
Tensor log(const Tensor& x) {
  return apply_unary<Log>("log", x);
}
Tensor sqrt(const Tensor& x) {
  return apply_unary<Sqrt>("sqrt", x);
}
Tensor square(const Tensor& x) {
  return apply_unary<Square>("square", x);
}
Tensor relu(const Tensor& x) {
  return apply_unary<Relu>("relu", x);
}
Tensor gelu(const Tensor& x) {
  return apply_unary<Gelu>("gelu", x);
}
Tensor elu(const Tensor& x) {
  return apply_unary<Elu>("elu", x);
}
Tensor sigmoid(const Tensor& x) {
  return apply_unary<Sigmoid>("sigmoid", x);
}
Tensor silu(const Tensor& x) {
  return apply_unary<Silu>("silu", x);
}
Tensor tanh(const Tensor& x) {
  return apply_unary<Tanh>("tanh", x);
}
Tensor softplus(const Tensor& x) {
  return apply_unary<Softplus>("softplus", x);
}

Tensor dropout(const Tensor& x, const DropoutMask& mask) {
  check_defined("dropout", "x", x);
  check(mask.p >= 0 && mask.p < 1, "dropout", "probability ", mask.p, " is not in [0, 1)");
  if (!mask.is_active()) return x;
  return record("dropout", apply_mask(x, mask), {&x},
                [mask](const Tensor& g) { return Gradients{apply_mask(g, mask)}; });
}

}  // namespace tapeformer
