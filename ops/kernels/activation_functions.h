// The function objects of activations of linear layers (ops/kernels/linear.h).
#pragma once

#include "ops/kernels/elementwise_functions.h"
#include "ops/kernels/linear.h"

namespace tapeformer {

// The approximation of gelu with tanh: 0.5 x (1 + tanh(u)) with u = √(2/π) (x + 0.044715 x³).
struct GeluTanh {
  static constexpr double kSqrtTwoOverPi = 0.79788456080286535588, kCubic = 0.044715;
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T tanh_of_cubic(T x) {
    return Math::tanh(T(kSqrtTwoOverPi) * (x + T(kCubic) * x * x * x));
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return T(0.5) * x * (1 + tanh_of_cubic<Math>(x));
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    const T t = tanh_of_cubic<Math>(x);
    const T slope = T(kSqrtTwoOverPi) * (1 + T(3 * kCubic) * x * x);
    return T(0.5) * (1 + t + x * (1 - t * t) * slope);
  }
};

// The function object of an activation.
template <Activation activation>
struct ActivationFunctionOf {
  using Type = Identity;
};
template <>
struct ActivationFunctionOf<Activation::relu> {
  using Type = Relu;
};
template <>
struct ActivationFunctionOf<Activation::gelu> {
  using Type = Gelu;
};
template <>
struct ActivationFunctionOf<Activation::gelu_tanh> {
  using Type = GeluTanh;
};
template <>
struct ActivationFunctionOf<Activation::silu> {
  using Type = Silu;
};
template <Activation activation>
using ActivationFunction = typename ActivationFunctionOf<activation>::Type;

// Calls f(std::integral_constant<Activation, activation>{}).
template <class F>
decltype(auto) visit_activation(Activation activation, F&& f) {
  switch (activation) {
    case Activation::relu:
      return f(std::integral_constant<Activation, Activation::relu>{});
    case Activation::gelu:
      return f(std::integral_constant<Activation, Activation::gelu>{});
    case Activation::gelu_tanh:
      return f(std::integral_constant<Activation, Activation::gelu_tanh>{});
    case Activation::silu:
      return f(std::integral_constant<Activation, Activation::silu>{});
    case Activation::none:
      break;
  }
  return f(std::integral_constant<Activation, Activation::none>{});
}

}  // namespace tapeformer
