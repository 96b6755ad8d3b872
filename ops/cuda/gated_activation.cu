#include "ops/kernels/gated_activation.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/activation_functions.h"

namespace tapeformer::cuda {
namespace {

template <Activation activation, class T>
__global__ void gated_forward_kernel(GatedActivationShape s, const T* x,
                                     DropoutMultipliers<Compute<T>> dropout, T* y) {
  using C = Compute<T>;
  for (int64_t i = first_element(); i < s.rows * s.dim; i += element_stride()) {
    const int64_t at = i / s.dim * 2 * s.dim + i % s.dim;
    const C value = ActivationFunction<activation>::template value<DeviceMath>(static_cast<C>(x[at]));
    y[i] = T(value * static_cast<C>(x[at + s.dim]) * dropout.multiplier(i));
  }
}

template <Activation activation, class T>
__global__ void gated_backward_kernel(GatedActivationShape s, const T* g, const T* x,
                                      DropoutMultipliers<Compute<T>> dropout, T* gx) {
  using C = Compute<T>;
  using Function = ActivationFunction<activation>;
  for (int64_t i = first_element(); i < s.rows * s.dim; i += element_stride()) {
    const int64_t at = i / s.dim * 2 * s.dim + i % s.dim;
    const C input = static_cast<C>(x[at]), output = static_cast<C>(g[i]) * dropout.multiplier(i);
    const C value = Function::template value<DeviceMath>(input);
    gx[at] =
        T(output * static_cast<C>(x[at + s.dim]) * Function::template derivative<DeviceMath>(input, value));
    gx[at + s.dim] = T(output * value);
  }
}

}  // namespace

template <class T>
void gated_activation_forward(Backend, const GatedActivationShape& s, const T* x, const DropoutMask& dropout,
                              T* y) {
  visit_activation(s.activation, [&](auto constant) {
    launch(gated_forward_kernel<constant(), T>, make_elementwise_launch(s.rows * s.dim), s, x,
           DropoutMultipliers<Compute<T>>(dropout), y);
  });
}

template <class T>
void gated_activation_backward(Backend, const GatedActivationShape& s, const T* g, const T* x,
                               const DropoutMask& dropout, T* gx) {
  visit_activation(s.activation, [&](auto constant) {
    launch(gated_backward_kernel<constant(), T>, make_elementwise_launch(s.rows * s.dim), s, g, x,
           DropoutMultipliers<Compute<T>>(dropout), gx);
  });
}

template <class T>
struct GatedActivationKernels {
  inline static const FunctionInstances all{&gated_activation_forward<T>, &gated_activation_backward<T>};
};
template struct GatedActivationKernels<float>;
template struct GatedActivationKernels<double>;
template struct GatedActivationKernels<BFloat16>;

}  // namespace tapeformer::cuda
