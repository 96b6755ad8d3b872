#include "ops/top_positions.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/top_positions.h"

namespace tapeformer {
namespace {

constexpr const char* kTop = "select_top_positions";

}  // namespace

Tensor select_top_positions(const Tensor& input, int64_t count) {
  check_defined(kTop, "x", input);
  check(input.rank() >= 1, kTop, "x must have at least one dimension");
  check(count >= 1 && count <= input.size(-1), kTop, "count must be from 1 to ", input.size(-1), " for x ",
        input.shape(), ", not ", count);
  const Tensor x = make_contiguous(input);
  Shape shape = x.shape();
  shape[-1] = count;
  const Tensor positions = Tensor::empty(shape, DType::int64, x.device());
  dispatch_float_or_double(kTop, x, [&]<class T>(auto backend) {
    select_top_k(backend, x.data<T>(), x.numel() / x.size(-1), x.size(-1), count, positions.data<int64_t>());
  });
  return positions;
}

}  // namespace tapeformer
