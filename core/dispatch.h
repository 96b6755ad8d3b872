// Functions that call a generic lambda with the backend and the element type of a tensor.
#pragma once

#include "core/tensor.h"

namespace tapeformer {

// Calls f.operator()<T>(backend) with the element type and the backend of x. T is float or double. For other
// dtypes, throws ShapeError with the name of the op.
//
//   dispatch_float_or_double("exp", x, [&]<class T>(auto backend) {
//     exp(backend, x.data<T>(), y.data<T>(), x.numel());
//   });
template <class F>
void dispatch_float_or_double(const char* op, const Tensor& x, F&& f) {
  if (x.dtype() == DType::float64) return run_on_device<double>(x.device(), op, f);
  check(x.dtype() == DType::float32, op, "needs float32 or float64, not ", name_of(x.dtype()));
  run_on_device<float>(x.device(), op, f);
}

// Like dispatch_float_or_double(), but also accepts bfloat16 tensors, for which T is BFloat16.
template <class F>
void dispatch_floating(const char* op, const Tensor& x, F&& f) {
  if (x.dtype() == DType::bfloat16) return run_on_device<BFloat16>(x.device(), op, f);
  check(is_floating(x.dtype()), op, "needs float32, float64 or bfloat16, not ", name_of(x.dtype()));
  dispatch_float_or_double(op, x, f);
}

}  // namespace tapeformer
