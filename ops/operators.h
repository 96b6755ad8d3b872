// The operators + - * / on tensors and numbers. They call add, sub, mul, div and neg (ops/elementwise.h).
// Operands broadcast by NumPy's rules, dtypes must agree, and the results are recorded on the tape.
#pragma once

#include "ops/elementwise.h"

namespace tapeformer {

inline Tensor operator+(const Tensor& a, const Tensor& b) {
  return add(a, b);
}
inline Tensor operator-(const Tensor& a, const Tensor& b) {
  return sub(a, b);
}
inline Tensor operator*(const Tensor& a, const Tensor& b) {
  return mul(a, b);
}
inline Tensor operator/(const Tensor& a, const Tensor& b) {
  return div(a, b);
}
inline Tensor operator-(const Tensor& x) {
  return neg(x);
}

inline Tensor operator+(const Tensor& a, double b) {
  return add(a, b);
}
inline Tensor operator+(double a, const Tensor& b) {
  return add(b, a);
}
inline Tensor operator-(const Tensor& a, double b) {
  return add(a, -b);
}
inline Tensor operator-(double a, const Tensor& b) {
  return add(neg(b), a);
}
inline Tensor operator*(const Tensor& a, double b) {
  return mul(a, b);
}
inline Tensor operator*(double a, const Tensor& b) {
  return mul(b, a);
}
inline Tensor operator/(const Tensor& a, double b) {
  return mul(a, 1 / b);
}
Tensor operator/(double a, const Tensor& b);

// The statement a += b is the same as a = a + b. The operator assigns a new tensor to the handle `a`, and
// does not change the elements of the old tensor. Throws ShapeError if `a` is a leaf that requires a
// gradient, because the result a + b would not be a leaf. To update a parameter in place, call
// Tensor::add_scaled().
Tensor& operator+=(Tensor& a, const Tensor& b);
Tensor& operator-=(Tensor& a, const Tensor& b);
Tensor& operator*=(Tensor& a, const Tensor& b);
Tensor& operator/=(Tensor& a, const Tensor& b);
Tensor& operator+=(Tensor& a, double b);
Tensor& operator-=(Tensor& a, double b);
Tensor& operator*=(Tensor& a, double b);
Tensor& operator/=(Tensor& a, double b);

}  // namespace tapeformer
