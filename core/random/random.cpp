#include "core/random/random.h"

#include "core/threads/threads.h"

namespace tapeformer {
namespace {

constexpr int64_t kGrain = 1 << 12;  // minimum number of elements per thread

// Returns a tensor whose element i is number(i).
template <class F>
Tensor generate(const char* op, const Shape& shape, DType dtype, Device device, F number) {
  check(is_floating(dtype), op, "needs a floating dtype, not ", name_of(dtype));
  const Tensor values = Tensor::empty(shape, DType::float64);
  double* const data = values.data<double>();
  parallel_for(values.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) data[i] = number(static_cast<uint64_t>(i));
  });
  return (dtype == DType::float64 ? values : values.to(dtype)).to(device);
}

}  // namespace

Tensor randn(const Shape& shape, const RandomStream& stream, DType dtype, Device device) {
  return generate("randn", shape, dtype, device, [&](uint64_t i) { return stream.normal(i); });
}

Tensor uniform(const Shape& shape, double low, double high, const RandomStream& stream, DType dtype,
               Device device) {
  check(low <= high, "uniform", "low must not exceed high, but low is ", low, " and high is ", high);
  return generate("uniform", shape, dtype, device,
                  [&](uint64_t i) { return low + (high - low) * stream.uniform(i); });
}

}  // namespace tapeformer
