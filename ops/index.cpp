#include "ops/index.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/index.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

GatherShape index_shape(const char* op, const Shape& x, int dim, const Shape& index) {
  check(index.rank() == x.rank(), op, "index ", index, " and tensor ", x, " differ in rank");
  GatherShape shape{1, x[dim], index[dim], 1};
  for (int i = 0; i < x.rank(); ++i) {
    check(i == dim || index[i] == x[i], op, "index ", index, " does not match tensor ", x,
          " outside dimension ", dim);
    if (i < dim) shape.outer_size *= x[i];
    if (i > dim) shape.inner_size *= x[i];
  }
  return shape;
}

Tensor gather_any(const Tensor& x_any, const Tensor& index, const GatherShape& shape) {
  const Tensor x = make_contiguous(x_any);
  const Tensor y = Tensor::empty(index.shape(), x.dtype(), x.device());
  dispatch_float_or_double("gather", x, [&]<class T>(auto backend) {
    gather_middle_dim(backend, shape, x.data<T>(), index.data<int64_t>(), y.data<T>());
  });
  return y;
}

// Adds each element of `source` to the element of `target` that `index` selects.
void scatter_into(const Tensor& target, const Tensor& source_any, const Tensor& index,
                  const GatherShape& shape) {
  const Tensor source = make_contiguous(source_any);
  dispatch_float_or_double("scatter_add", target, [&]<class T>(auto backend) {
    scatter_add_middle_dim(backend, shape, source.data<T>(), index.data<int64_t>(), target.data<T>());
  });
}

// Returns the rows of `table` (rows, dim) that `rows` (…) selects, (…, dim).
Tensor take_rows(const Tensor& table, const Tensor& rows) {
  Shape shape = rows.shape();
  shape.append(table.size(1));
  const Tensor y = Tensor::empty(shape, table.dtype(), table.device());
  dispatch_float_or_double("embedding", table, [&]<class T>(auto backend) {
    gather_rows(backend, table.data<T>(), table.size(0), rows.data<int64_t>(), y.data<T>(), rows.numel(),
                table.size(1));
  });
  return y;
}

// Returns the adjoint of take_rows(), (count, dim).
Tensor sum_rows(const Tensor& x_any, const Tensor& rows, int64_t count) {
  const Tensor x = make_contiguous(x_any);
  const Tensor y = Tensor::zeros({count, x.size(-1)}, x.dtype(), x.device());
  dispatch_float_or_double("scatter_rows", x, [&]<class T>(auto backend) {
    scatter_add_rows(backend, x.data<T>(), rows.data<int64_t>(), y.data<T>(), count, rows.numel(), y.size(1));
  });
  return y;
}

}  // namespace

Tensor prepare_index(const char* op, const Tensor& index, int64_t size, Device device) {
  check_defined(op, "the index", index);
  visit_index_dtype(op, index.dtype(), [](auto) {});
  const Tensor plain = index.to(DType::int64);
  if (!plain.device().is_cpu()) return plain;
  const int64_t* const values = plain.data<int64_t>();
  for (int64_t i = 0; i < plain.numel(); ++i)
    check(values[i] >= 0 && values[i] < size, op, "index ", values[i], " at element ", i, " is not in [0, ",
          size, ")");
  return plain.to(device);
}

Tensor embedding(const Tensor& table, const Tensor& index) {
  check_defined("embedding", "the table", table, "the index", index);
  check(table.rank() == 2 && table.is_contiguous(), "embedding", "the table must be (rows, dim), not ",
        table.shape());
  const Tensor rows = prepare_index("embedding", index, table.size(0), table.device());
  return record(
      "embedding", take_rows(table, rows), {&table},
      [rows, count = table.size(0)](const Tensor& g) { return Gradients{sum_rows(g, rows, count)}; });
}

Tensor scatter_rows(const Tensor& x, const Tensor& index, int64_t count) {
  check_defined("scatter_rows", "x", x, "the index", index);
  Shape shape = index.shape();
  shape.append(x.size(-1));
  check(x.shape() == shape, "scatter_rows", "x ", x.shape(), " does not match the index ", index.shape());
  const Tensor rows = prepare_index("scatter_rows", index, count, x.device());
  return record("scatter_rows", sum_rows(x, rows, count), {&x},
                [rows](const Tensor& g) { return Gradients{take_rows(make_contiguous(g), rows)}; });
}

Tensor gather(const Tensor& x, int dim, const Tensor& index) {
  check_defined("gather", "x", x, "the index", index);
  dim = normalize_dim("gather", dim, x.rank());
  const GatherShape shape = index_shape("gather", x.shape(), dim, index.shape());
  const Tensor indices = prepare_index("gather", index, shape.size, x.device());
  return record("gather", gather_any(x, indices, shape), {&x},
                [indices, shape, from = x.shape()](const Tensor& g) {
                  const Tensor gx = Tensor::zeros(from, g.dtype(), g.device());
                  scatter_into(gx, g, indices, shape);
                  return Gradients{gx};
                });
}

Tensor scatter_add(const Tensor& x, int dim, const Tensor& index, const Tensor& source) {
  check_defined("scatter_add", "x", x, "the index", index, "the source", source);
  dim = normalize_dim("scatter_add", dim, x.rank());
  check(source.shape() == index.shape() && source.dtype() == x.dtype(), "scatter_add", "source ",
        name_of(source.dtype()), " ", source.shape(), " does not match index ", index.shape(), " and x ",
        name_of(x.dtype()));
  const GatherShape shape = index_shape("scatter_add", x.shape(), dim, index.shape());
  const Tensor indices = prepare_index("scatter_add", index, shape.size, x.device());
  const Tensor out = detach(x).clone();
  scatter_into(out, source, indices, shape);
  return record("scatter_add", out, {&x, &source}, [indices, shape](const Tensor& g, NeededGradients needs) {
    return Gradients{g, needs[1] ? gather_any(g, indices, shape) : Tensor{}};
  });
}

}  // namespace tapeformer
