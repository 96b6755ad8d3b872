#include "ops/row_loss.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/row_loss.h"

namespace tapeformer {

Tensor compute_row_weights(const char* op, const Tensor& mask, int64_t rows, DType dtype, Device device) {
  check(!mask.defined() || (mask.shape() == Shape{rows} && mask.dtype() == DType::uint8), op,
        "the weights of rows must be uint8 ", Shape{rows});
  const Tensor row_mask = mask.defined() ? mask.clone().to(device) : Tensor{};
  const Tensor weights = Tensor::empty({rows}, dtype, device);
  dispatch_float_or_double(op, weights, [&]<class T>(auto backend) {
    compute_row_weights(backend, get_data_or_null<uint8_t>(row_mask), weights.data<T>(), rows);
  });
  return weights;
}

Tensor compute_weighted_sum(const char* op, const Tensor& values, const Tensor& weights) {
  const Tensor total = Tensor::empty({}, values.dtype(), values.device());
  const int64_t rows = values.numel();
  dispatch_float_or_double(op, values, [&]<class T>(auto backend) {
    compute_weighted_sum(backend, values.data<T>(), weights.data<T>(), total.data<T>(), rows);
  });
  return total;
}

Tensor multiply_by_scalar(const char* op, const Tensor& x, const Tensor& factor) {
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    multiply_by_device_scalar(backend, x.data<T>(), factor.data<T>(), y.data<T>(), x.numel());
  });
  return y;
}

}  // namespace tapeformer
