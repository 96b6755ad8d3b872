#include "ops/gumbel.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/gumbel.h"

namespace tapeformer {

Tensor add_gumbel_noise(const Tensor& input, const RandomStream& stream, int64_t offset) {
  constexpr const char* kOp = "add_gumbel_noise";
  check_defined(kOp, "x", input);
  const Tensor x = make_contiguous(input), y = Tensor::empty_like(x);
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    add_gumbel_noise(backend, x.data<T>(), stream, offset, y.data<T>(), x.numel());
  });
  return record(kOp, y, {&input}, [](const Tensor& g) { return Gradients{g}; });
}

}  // namespace tapeformer
