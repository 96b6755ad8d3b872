// Kernels of gated activations (ops/gated_activation.h). A row of x is a row a of the inputs of the
// activation, followed by a row b of the factors: x is (rows, 2 dim).
#pragma once

#include "ops/kernels/linear.h"

namespace tapeformer {

struct GatedActivationShape {
  int64_t rows = 0, dim = 0;
  Activation activation = Activation::none;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y = dropout(activation(a) b), (rows, dim).
    template <class T> void gated_activation_forward(Backend, const GatedActivationShape& shape, const T* x,
                                                     const DropoutMask& dropout, T* y);
    // Computes gx (rows, 2 dim), the gradient of x, from g (rows, dim), the gradient of y.
    template <class T> void gated_activation_backward(Backend, const GatedActivationShape& shape, const T* g,
                                                      const T* x, const DropoutMask& dropout, T* gx);

)

}  // namespace tapeformer
