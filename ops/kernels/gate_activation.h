// Activations that are computed from a sigmoid. Both backends use the same functions. The template parameter
// Math is VectorMath (core/cpu/vector_math.h) or DeviceMath (core/cuda/kernel.h). In CPU kernels, T can be a
// vector type. The functions are always inlined: a call in a loop over elements keeps the loop scalar.
#pragma once

#include "core/base/host_device.h"

namespace tapeformer {

enum class GateActivation { none, silu, sigmoid };

template <class Math, class T>
[[gnu::always_inline]] inline TAPEFORMER_HOST_DEVICE T compute_gate(GateActivation activation, T x) {
  if (activation == GateActivation::none) return x;
  const T s = Math::sigmoid(x);
  return activation == GateActivation::silu ? x * s : s;
}

template <class T>
struct GateAndDerivative {
  T value, derivative;
};
template <class Math, class T>
[[gnu::always_inline]] inline TAPEFORMER_HOST_DEVICE GateAndDerivative<T> compute_gate_and_derivative(
    GateActivation activation, T x) {
  if (activation == GateActivation::none) return {x, T{} + 1};
  const T s = Math::sigmoid(x), y = x * s;
  if (activation == GateActivation::silu) return {y, s + y * (1 - s)};
  return {s, s * (1 - s)};
}

}  // namespace tapeformer
