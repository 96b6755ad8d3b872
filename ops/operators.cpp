#include "ops/operators.h"

namespace tapeformer {
namespace {

template <class F>
Tensor& assign(const char* op, Tensor& a, F&& result) {
  check_defined(op, "the left-hand side", a);
  check(!requires_grad(a) || !is_leaf(a), op,
        "the left-hand side is a leaf that requires a gradient; to update it in place, call add_scaled");
  return a = result();
}

}  // namespace

Tensor operator/(double a, const Tensor& b) {
  check_defined("operator/", "the right-hand side", b);
  return div(Tensor::full({}, a, b.dtype(), b.device()), b);
}

Tensor& operator+=(Tensor& a, const Tensor& b) {
  return assign("operator+=", a, [&] { return a + b; });
}
Tensor& operator-=(Tensor& a, const Tensor& b) {
  return assign("operator-=", a, [&] { return a - b; });
}
Tensor& operator*=(Tensor& a, const Tensor& b) {
  return assign("operator*=", a, [&] { return a * b; });
}
Tensor& operator/=(Tensor& a, const Tensor& b) {
  return assign("operator/=", a, [&] { return a / b; });
}
Tensor& operator+=(Tensor& a, double b) {
  return assign("operator+=", a, [&] { return a + b; });
}
Tensor& operator-=(Tensor& a, double b) {
  return assign("operator-=", a, [&] { return a - b; });
}
Tensor& operator*=(Tensor& a, double b) {
  return assign("operator*=", a, [&] { return a * b; });
}
Tensor& operator/=(Tensor& a, double b) {
  return assign("operator/=", a, [&] { return a / b; });
}

}  // namespace tapeformer
