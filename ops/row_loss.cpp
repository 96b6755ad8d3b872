#include "ops/row_loss.h"

#include "ops/kernels/row_loss.h"

namespace tapeformer {

Tensor row_weights(const char* op, const Tensor& mask, int64_t rows, DType dtype, Device device) {
  check(!mask.defined() || (mask.shape() == Shape{rows} && mask.dtype() == DType::uint8), op,
        "the weights of rows must be uint8 ", Shape{rows});
  const Tensor counted = mask.defined() ? mask.clone().to(device) : Tensor{};
  const Tensor weights = Tensor::empty({rows}, dtype, device);
  visit_floating(op, dtype, [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      kernel(counted.defined() ? counted.data<uint8_t>() : nullptr, weights.data<T>(), rows);
    };
    on_device(
        device, op, [&] { run([](auto... a) { cpu::row_weights(a...); }); },
        [&] { run([](auto... a) { cuda::row_weights(a...); }); });
  });
  return weights;
}

Tensor weighted_sum(const char* op, const Tensor& values, const Tensor& weights) {
  const Tensor total = Tensor::empty({}, values.dtype(), values.device());
  const int64_t rows = values.numel();
  visit_floating(op, values.dtype(), [&](auto tag) {
    using T = decltype(tag);
    on_device(
        values.device(), op,
        [&] { cpu::weighted_sum(values.data<T>(), weights.data<T>(), total.data<T>(), rows); },
        [&] { cuda::weighted_sum(values.data<T>(), weights.data<T>(), total.data<T>(), rows); });
  });
  return total;
}

Tensor multiplied_by(const char* op, const Tensor& x, const Tensor& factor) {
  const Tensor y = Tensor::empty_like(x);
  visit_floating(op, x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    on_device(
        x.device(), op, [&] { cpu::multiply_by(x.data<T>(), factor.data<T>(), y.data<T>(), x.numel()); },
        [&] { cuda::multiply_by(x.data<T>(), factor.data<T>(), y.data<T>(), x.numel()); });
  });
  return y;
}

}  // namespace tapeformer
