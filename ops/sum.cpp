#include "ops/sum.h"

#include "core/dispatch.h"
#include "ops/detail/split.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/reduce.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns the sum over one dimension, which keeps size 1. The call is not recorded.
Tensor sum_dim(const Tensor& x, int dim) {
  const Tensor source = make_contiguous(x);
  const ReductionShape reduction = make_reduction_shape(x.shape(), dim);
  const Tensor out = Tensor::empty(reduction.keep_dim_shape, x.dtype(), x.device());
  const int64_t outer = reduction.outer_size, size = reduction.size, inner = reduction.inner_size;
  dispatch_float_or_double("sum", x, [&]<class T>(auto backend) {
    sum_middle_dim(backend, source.data<T>(), out.data<T>(), outer, size, inner);
  });
  return out;
}

}  // namespace

Tensor sum(const Tensor& x) {
  check_defined("sum", "x", x);
  return reshape(sum(reshape(x, {-1}), 0), {});
}

Tensor sum(const Tensor& x, int dim, bool keep_dim) {
  check_defined("sum", "x", x);
  dim = normalize_dim("sum", dim, x.rank());
  const ReductionShape reduction = make_reduction_shape(x.shape(), dim);
  const Tensor out = sum_dim(x, dim).view(keep_dim ? reduction.keep_dim_shape : reduction.squeezed_shape);
  return record("sum", out, {&x}, [shape = x.shape(), kept = reduction.keep_dim_shape](const Tensor& g) {
    return Gradients{broadcast_to(make_contiguous(g).view(kept), shape)};
  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", "x", x);
  if (x.shape() == shape) return x;
  check(shape.rank() <= x.rank() && broadcast_shapes("sum_to", shape, x.shape()) == x.shape(), "sum_to",
        "shape ", x.shape(), " is not a broadcast of ", shape);
  Tensor out = x;
  while (out.rank() > shape.rank()) out = sum(out, 0);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != out.size(i)) out = sum(out, i, true);
  return out;
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  check_defined("broadcast_to", "x", x);
  if (x.shape() == shape) return x;
  check(x.rank() <= shape.rank() && broadcast_shapes("broadcast_to", x.shape(), shape) == shape,
        "broadcast_to", "shape ", x.shape(), " does not broadcast to ", shape);
  Shape strides = Shape::filled(shape.rank(), 0);
  for (int i = 1; i <= x.rank(); ++i)
    if (x.size(-i) != 1) strides[-i] = x.strides()[-i];
  return record("broadcast_to", x.alias(shape, strides), {&x},
                [from = x.shape()](const Tensor& g) { return Gradients{sum_to(g, from)}; });
}

}  // namespace tapeformer
