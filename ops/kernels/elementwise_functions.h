// Function objects of the elementwise kernels. Both backends use the same objects. A unary function has the
// members value(x) and derivative(x, y), where y is value(x). A binary function has the members value(a, b),
// derivative_a(a, b) and derivative_b(a, b), which are the value and the two partial derivatives. The
// template parameter Math provides exp, log and other functions: VectorMath (core/cpu/vector_math.h) or
// DeviceMath (core/cuda/kernel.h).
#pragma once

#include "core/base/host_device.h"
#include "ops/kernels/gate_activation.h"

namespace tapeformer {

struct Identity {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T) {
    return T{} + 1;
  }
};
struct Negate {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return -x;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T) {
    return -1;
  }
};
struct Exp {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::exp(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    return y;
  }
};
struct Log {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::log(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    return 1 / x;
  }
};
struct Sqrt {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::sqrt(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    return T(0.5) / y;
  }
};
struct Square {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x * x;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    return 2 * x;
  }
};
// Relu returns NaN for NaN, and its derivative at NaN is 1.
struct Relu {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x < T{} ? T{} : x;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    const T one = T{} + 1;
    return y <= T{} ? T{} : one;
  }
};
// The exact form of gelu: x Φ(x), where Φ is the cumulative distribution function of the normal distribution.
struct Gelu {
  static constexpr double kSqrtHalf = 0.70710678118654752440, kInvSqrtTwoPi = 0.39894228040143267794;
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T cdf(T x) {
    return T(0.5) * (1 + Math::erf(x * T(kSqrtHalf)));
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x * cdf<Math>(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    return cdf<Math>(x) + x * T(kInvSqrtTwoPi) * Math::exp(T(-0.5) * x * x);
  }
};
struct Elu {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return x > 0 ? x : Math::expm1(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T y) {
    return x > 0 ? T{1} : y + 1;
  }
};
struct Sigmoid {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::sigmoid(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    return y * (1 - y);
  }
};
struct Silu {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return compute_gate<Math>(GateActivation::silu, x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    return compute_gate_and_derivative<Math>(GateActivation::silu, x).derivative;
  }
};
struct Tanh {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::tanh(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T, T y) {
    return 1 - y * y;
  }
};
struct Softplus {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T x) {
    return Math::softplus(x);
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative(T x, T) {
    return Math::sigmoid(x);
  }
};
struct Add {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T a, T b) {
    return a + b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_a(T, T) {
    return 1;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_b(T, T) {
    return 1;
  }
};
struct Subtract {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T a, T b) {
    return a - b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_a(T, T) {
    return 1;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_b(T, T) {
    return -1;
  }
};
struct Multiply {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T a, T b) {
    return a * b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_a(T, T b) {
    return b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_b(T a, T) {
    return a;
  }
};
struct Divide {
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T value(T a, T b) {
    return a / b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_a(T, T b) {
    return 1 / b;
  }
  template <class Math, class T>
  TAPEFORMER_HOST_DEVICE static T derivative_b(T a, T b) {
    return -a / (b * b);
  }
};

}  // namespace tapeformer
