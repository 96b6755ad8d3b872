// Kernels of norms without mean (ops/rms_norm.h).
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/dtype.h"
#include "core/base/host_device.h"
#include "ops/kernels/gate_activation.h"

namespace tapeformer {

// Rows with contiguous elements and two strides: row i begins at i / inner_rows * outer_stride + i %
// inner_rows * inner_stride.
template <class T>
struct NormRows {
  T* data = nullptr;
  int64_t inner_rows = 1, outer_stride = 0, inner_stride = 0;

  TAPEFORMER_HOST_DEVICE T* row(int64_t i) const {
    return data + i / inner_rows * outer_stride + i % inner_rows * inner_stride;
  }
};

// y = scale * x * rsqrt(factor * Σ x² + eps) * weight * activation(gate)
struct RmsNormShape {
  int64_t rows = 0, dim = 0;
  double factor = 1, eps = 0, scale = 1;
  GateActivation activation = GateActivation::none;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // `weight` (dim,) and gate.data can be null. O is T, or T is float and O is bfloat16. y may be x.
    template <class T, class O>
    void rms_norm_forward(Backend, const RmsNormShape& shape, NormRows<const T> x, const Compute<T>* weight,
                          NormRows<const T> gate, NormRows<O> y);
    // Computes the gradients of x (rows, dim), weight and gate (rows, dim) from the gradient g of y. gx,
    // gweight and ggate can be null.
    template <class T> void rms_norm_backward(Backend, const RmsNormShape& shape, NormRows<const T> g,
                                              NormRows<const T> x, const Compute<T>* weight,
                                              NormRows<const T> gate, T* gx, Compute<T>* gweight, T* ggate);

)

}  // namespace tapeformer
