#pragma once
#include <cmath>
namespace tapeformer::vmath {
template <class T>
T exp(T x) {
  return std::exp(x);
}
template <class T>
T log(T x) {
  return std::log(x);
}
template <class T>
T expm1(T x) {
  return std::expm1(x);
}
template <class T>
T erf(T x) {
  return std::erf(x);
}
template <class T>
T tanh(T x) {
  return std::tanh(x);
}
template <class T>
T sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}
template <class T>
T softplus(T x) {
  return std::log1p(std::exp(-std::abs(x))) + (x > 0 ? x : T{0});
}
}  // namespace tapeformer::vmath
