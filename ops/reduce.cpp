#include "ops/reduce.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/elementwise.h"
#include "ops/kernels/reduce.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// A tensor as (outer, size, inner), where `size` is the reduced dimension.
struct Split {
  int64_t outer = 1, size = 1, inner = 1;
  Shape kept;     // shape with size 1 in the reduced dimension
  Shape dropped;  // shape without the reduced dimension
};

Split split_at(const Shape& shape, int dim) {
  Split split;
  split.kept = shape;
  split.kept[dim] = 1;
  split.size = shape[dim];
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < dim) split.outer *= shape[i];
    if (i > dim) split.inner *= shape[i];
    if (i != dim) split.dropped.append(shape[i]);
  }
  return split;
}

// Returns the sum of one dimension, kept as size 1. Records nothing.
Tensor sum_dim(const Tensor& x, int dim) {
  const Tensor source = dense(x);
  const Split split = split_at(x.shape(), dim);
  const Tensor out = Tensor::empty(split.kept, x.dtype(), x.device());
  const int64_t outer = split.outer, size = split.size, inner = split.inner;
  dispatch("sum", x, [&]<class T>(auto backend) {
    sum_middle(backend, source.data<T>(), out.data<T>(), outer, size, inner);
  });
  return out;
}

void max_into(const char* op, const Tensor& x, const Split& split, const Tensor& out, const Tensor& index) {
  dispatch(op, x, [&]<class T>(auto backend) {
    max_middle(backend, x.data<T>(), out.data<T>(), index.data<int64_t>(), split.outer, split.size,
               split.inner);
  });
}

}  // namespace

Tensor sum(const Tensor& x) {
  check_defined("sum", "x", x);
  return reshape(sum(reshape(x, {-1}), 0), {});
}

Tensor sum(const Tensor& x, int dim, bool keep_dim) {
  check_defined("sum", "x", x);
  dim = normalize_dim("sum", dim, x.rank());
  const Split split = split_at(x.shape(), dim);
  const Tensor out = sum_dim(x, dim).view(keep_dim ? split.kept : split.dropped);
  return record("sum", out, {&x}, [shape = x.shape(), kept = split.kept](const Tensor& g) {
    return Gradients{broadcast_to(dense(g).view(kept), shape)};
  });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  check_defined("sum_to", "x", x);
  if (x.shape() == shape) return x;
  check(shape.rank() <= x.rank() && broadcast_shapes("sum_to", shape, x.shape()) == x.shape(), "sum_to",
        "shape ", x.shape(), " is no broadcast of ", shape);
  Tensor out = x;
  while (out.rank() > shape.rank()) out = sum(out, 0);
  for (int i = 0; i < shape.rank(); ++i)
    if (shape[i] != out.size(i)) out = sum(out, i, true);
  return out;
}

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
  const Tensor source = dense(x);
  const Split split = split_at(x.shape(), dim);
  check(split.size > 0, "max", "dimension ", dim, " of shape ", x.shape(), " is empty");
  const Shape shape = keep_dim ? split.kept : split.dropped;
  const Tensor out = Tensor::empty(shape, x.dtype(), x.device());
  const Tensor index = Tensor::empty(shape, DType::int64, x.device());
  max_into("max", source, split, out, index);
  return record("max", out, {&x}, [index, split, whole = x.shape()](const Tensor& gradient) {
    const Tensor g = dense(gradient);
    const Tensor gx = Tensor::empty(whole, g.dtype(), g.device());
    dispatch("max", g, [&]<class T>(auto backend) {
      scatter_middle(backend, g.data<T>(), index.data<int64_t>(), gx.data<T>(), split.outer, split.size,
                     split.inner);
    });
    return Gradients{gx};
  });
}

Tensor argmax(const Tensor& x) {
  check_defined("argmax", "x", x);
  check(x.rank() >= 1 && x.size(-1) > 0, "argmax", "the last dimension of shape ", x.shape(), " is empty");
  const Tensor source = dense(x);
  const Split split = split_at(x.shape(), x.rank() - 1);
  const Tensor out = Tensor::empty(split.dropped, x.dtype(), x.device());
  const Tensor index = Tensor::empty(split.dropped, DType::int64, x.device());
  max_into("argmax", source, split, out, index);
  return index;
}

}  // namespace tapeformer
