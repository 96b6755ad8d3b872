#include "ops/reduce.h"

#include "core/dispatch.h"
#include "ops/detail/split.h"
#include "ops/detail/tensors.h"
#include "ops/elementwise.h"
#include "ops/kernels/reduce.h"

namespace tapeformer {
namespace {

void max_into(const char* op, const Tensor& x, const ReductionShape& reduction, const Tensor& out,
              const Tensor& index) {
  dispatch_float_or_double(op, x, [&]<class T>(auto backend) {
    max_middle_dim(backend, x.data<T>(), out.data<T>(), index.data<int64_t>(), reduction.outer_size,
                   reduction.size, reduction.inner_size);
  });
}

}  // namespace

Tensor mean(const Tensor& x) {
  check_defined("mean", "x", x);
  return mul(sum(x), 1.0 / static_cast<double>(x.numel()));
}

Tensor mean(const Tensor& x, int dim, bool keep_dim) {
  check_defined("mean", "x", x);
  const double count = static_cast<double>(x.size(normalize_dim("mean", dim, x.rank())));
  return mul(sum(x, dim, keep_dim), 1.0 / count);
}

Tensor max(const Tensor& x, int dim, bool keep_dim) {
  check_defined("max", "x", x);
  dim = normalize_dim("max", dim, x.rank());
  const Tensor source = make_contiguous(x);
  const ReductionShape reduction = make_reduction_shape(x.shape(), dim);
  check(reduction.size > 0, "max", "dimension ", dim, " of shape ", x.shape(), " is empty");
  const Shape shape = keep_dim ? reduction.keep_dim_shape : reduction.squeezed_shape;
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor index = Tensor::empty(shape, DType::int64, x.device());
  max_into("max", source, reduction, out, index);
  return record("max", out, {&x}, [index, reduction, whole = x.shape()](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient);
    const Tensor gx = Tensor::empty(whole, g.dtype(), g.device());
    dispatch_float_or_double("max", g, [&]<class T>(auto backend) {
      scatter_middle_dim(backend, g.data<T>(), index.data<int64_t>(), gx.data<T>(), reduction.outer_size,
                         reduction.size, reduction.inner_size);
    });
    return Gradients{gx};
  });
}

Tensor argmax(const Tensor& x) {
  check_defined("argmax", "x", x);
  check(x.rank() >= 1 && x.size(-1) > 0, "argmax", "the last dimension of shape ", x.shape(), " is empty");
  const Tensor source = make_contiguous(x);
  const ReductionShape reduction = make_reduction_shape(x.shape(), x.rank() - 1);
  const Tensor out = Tensor::empty(reduction.squeezed_shape, x.dtype(), x.device());
  const Tensor index = Tensor::empty(reduction.squeezed_shape, DType::int64, x.device());
  max_into("argmax", source, reduction, out, index);
  return index;
}

}  // namespace tapeformer
