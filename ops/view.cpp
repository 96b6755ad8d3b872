#include "ops/view.h"

#include <algorithm>

#include "autograd/results.h"
#include "ops/detail/tensors.h"

namespace tapeformer {
namespace {

Shape replace_size(Shape shape, int dim, int64_t size) {
  shape[dim] = size;
  return shape;
}

// Returns the view of elements [begin, begin + count) of one dimension. The call is not recorded.
Tensor narrow(const Tensor& x, int dim, int64_t begin, int64_t count) {
  return x.alias(replace_size(x.shape(), dim, count), x.strides(), begin * x.strides()[dim]);
}

// Returns slice `index` of one dimension, without the dimension. The call is not recorded.
Tensor select(const Tensor& x, int dim, int64_t index) {
  Shape shape, strides;
  for (int i = 0; i < x.rank(); ++i) {
    if (i == dim) continue;
    shape.append(x.size(i));
    strides.append(x.strides()[i]);
  }
  return x.alias(shape, strides, index * x.strides()[dim]);
}

// Returns whether each part is contiguous and begins where the part before it ends, in one storage.
bool are_adjacent(const std::vector<Tensor>& parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_contiguous()) return false;
    if (i == 0) continue;
    const Tensor& before = parts[i - 1];
    if (!parts[i].shares_storage(before) ||
        static_cast<char*>(before.raw_data()) + before.bytes() != static_cast<char*>(parts[i].raw_data()))
      return false;
  }
  return true;
}

// Returns a copy of the parts, concatenated along `dim` to a tensor of this shape. The call is not recorded.
Tensor join_slices(const std::vector<Tensor>& parts, int dim, const Shape& shape) {
  const Tensor out = Tensor::empty(shape, parts[0].dtype(), parts[0].device());
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    narrow(out, dim, begin, part.size(dim)).copy_from(part);
    begin += part.size(dim);
  }
  return out;
}

}  // namespace

Tensor contiguous(const Tensor& x) {
  check_defined("contiguous", "x", x);
  if (x.is_contiguous()) return x;
  return record("contiguous", detach(x).clone(), {&x}, [](const Tensor& g) { return Gradients{g}; });
}

Tensor cast(const Tensor& x, DType dtype) {
  check_defined("cast", "x", x);
  if (x.dtype() == dtype) return x;
  check(is_floating(dtype) || !requires_grad(x), "cast", "a tensor that requires a gradient cannot become ",
        name_of(dtype));
  return record("cast", detach(x).to(dtype), {&x},
                [from = x.dtype()](const Tensor& g) { return Gradients{g.to(from)}; });
}

Tensor reshape(const Tensor& x, Shape shape) {
  check_defined("reshape", "x", x);
  int64_t known = 1;
  int inferred = -1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] != -1) {
      known *= shape[i];
    } else {
      check(inferred == -1, "reshape", "more than one size of ", shape, " is -1");
      inferred = i;
    }
  }
  if (inferred >= 0) {
    check(known > 0 && x.numel() % known == 0, "reshape", "shape ", x.shape(), " cannot become ", shape);
    shape[inferred] = x.numel() / known;
  }
  check(shape.numel() == x.numel(), "reshape", "shape ", x.shape(), " cannot become ", shape);
  const Tensor source = contiguous(x);
  return record("reshape", source.alias(shape, shape.contiguous_strides()), {&source},
                [from = x.shape()](const Tensor& g) { return Gradients{make_contiguous(g).view(from)}; });
}

Tensor permute(const Tensor& x, const Shape& order) {
  check_defined("permute", "x", x);
  check(order.rank() == x.rank(), "permute", "order ", order, " must have one entry per dimension of shape ",
        x.shape());
  Shape shape = x.shape(), strides = x.strides(), inverse = Shape::filled(x.rank(), -1);
  for (int i = 0; i < order.rank(); ++i) {
    const int from = normalize_dim("permute", static_cast<int>(order[i]), x.rank());
    check(inverse[from] == -1, "permute", "order ", order, " names a dimension twice");
    inverse[from] = i;
    shape[i] = x.size(from);
    strides[i] = x.strides()[from];
  }
  return record("permute", x.alias(shape, strides), {&x},
                [inverse](const Tensor& g) { return Gradients{permute(g, inverse)}; });
}

Tensor transpose(const Tensor& x, int dim0, int dim1) {
  check_defined("transpose", "x", x);
  Shape order;
  for (int i = 0; i < x.rank(); ++i) order.append(i);
  std::swap(order[normalize_dim("transpose", dim0, x.rank())],
            order[normalize_dim("transpose", dim1, x.rank())]);
  return permute(x, order);
}

Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end) {
  check_defined("slice", "x", x);
  dim = normalize_dim("slice", dim, x.rank());
  const int64_t size = x.size(dim);
  if (begin < 0) begin += size;
  if (end < 0) end += size;
  check(0 <= begin && begin <= end && end <= size, "slice", "[", begin, ", ", end,
        ") is out of range for dimension ", dim, " of shape ", x.shape());
  return record(
      "slice", narrow(x, dim, begin, end - begin), {&x},
      [dim, begin, after = size - end](const Tensor& g) { return Gradients{pad(g, dim, begin, after)}; });
}

Tensor pad(const Tensor& x, int dim, int64_t before, int64_t after) {
  check_defined("pad", "x", x);
  dim = normalize_dim("pad", dim, x.rank());
  check(before >= 0 && after >= 0, "pad", "cannot add ", before, " and ", after, " zeros to shape ",
        x.shape());
  if (before == 0 && after == 0) return x;
  const int64_t size = x.size(dim);
  const Tensor out =
      Tensor::zeros(replace_size(x.shape(), dim, before + size + after), x.dtype(), x.device());
  narrow(out, dim, before, size).copy_from(x);
  return record("pad", out, {&x},
                [dim, before, size](const Tensor& g) { return Gradients{narrow(g, dim, before, size)}; });
}

Tensor split_into_blocks(const Tensor& x, int dim, int64_t size) {
  check_defined("split_into_blocks", "x", x);
  check(size > 0, "split_into_blocks", "blocks of ", size, " elements cannot hold shape ", x.shape());
  dim = normalize_dim("split_into_blocks", dim, x.rank());
  const int64_t blocks = (x.size(dim) + size - 1) / size;
  Shape shape;
  for (int i = 0; i < x.rank(); ++i) {
    shape.append(i == dim ? blocks : x.size(i));
    if (i == dim) shape.append(size);
  }
  return reshape(pad(x, dim, 0, blocks * size - x.size(dim)), shape);
}

Tensor concat(const std::vector<Tensor>& parts, int dim) {
  for (const Tensor& part : parts) check_defined("concat", "a part", part);
  check(!parts.empty(), "concat", "needs at least one tensor");
  const Tensor& first = parts[0];
  dim = normalize_dim("concat", dim, first.rank());
  int64_t total = 0;
  for (const Tensor& part : parts) {
    check(part.rank() == first.rank() &&
              replace_size(part.shape(), dim, 0) == replace_size(first.shape(), dim, 0) &&
              part.dtype() == first.dtype(),
          "concat", "shapes ", first.shape(), " and ", part.shape(), " do not join along dimension ", dim);
    total += part.size(dim);
  }
  const Shape shape = replace_size(first.shape(), dim, total);
  // If all dimensions before `dim` have size 1, slices along `dim` are contiguous, and consecutive slices are
  // adjacent in memory.
  bool outermost = true;
  for (int i = 0; i < dim; ++i) outermost = outermost && shape[i] == 1;
  const Tensor out = outermost && are_adjacent(parts) ? first.alias(shape, shape.contiguous_strides())
                                                      : join_slices(parts, dim, shape);
  std::vector<int64_t> sizes;
  for (const Tensor& part : parts) sizes.push_back(part.size(dim));
  return record("concat", out, parts, [dim, sizes](const Tensor& g) {
    Gradients gradients;
    int64_t offset = 0;
    for (const int64_t size : sizes) {
      const Tensor part = narrow(g, dim, offset, size);
      gradients.push_back(part.is_contiguous() ? part : part.clone());
      offset += size;
    }
    return gradients;
  });
}

Tensor stack(const std::vector<Tensor>& parts, int dim) {
  for (const Tensor& part : parts) check_defined("stack", "a part", part);
  check(!parts.empty(), "stack", "needs at least one tensor");
  dim = normalize_dim("stack", dim, parts[0].rank() + 1);
  std::vector<Tensor> expanded;
  for (const Tensor& part : parts) {
    Shape shape;
    for (int i = 0; i <= part.rank(); ++i) {
      if (i == dim) shape.append(1);
      if (i < part.rank()) shape.append(part.size(i));
    }
    expanded.push_back(reshape(part, shape));
  }
  return concat(expanded, dim);
}

Shape compute_stacked_shape(const std::vector<Tensor>& parts, int dim) {
  Shape shape;
  for (int i = 0; i <= parts[0].rank(); ++i) {
    if (i == dim) shape.append(static_cast<int64_t>(parts.size()));
    if (i < parts[0].rank()) shape.append(parts[0].size(i));
  }
  return shape;
}

bool are_slices_of_one_tensor(const std::vector<Tensor>& parts, int dim) {
  const Tensor& first = parts[0];
  const Shape strides = compute_stacked_shape(parts, dim).contiguous_strides();
  for (size_t part = 0; part < parts.size(); ++part) {
    const Tensor& x = parts[part];
    if (x.shape() != first.shape() || x.dtype() != first.dtype() || !x.shares_storage(first)) return false;
    const int64_t offset = static_cast<int64_t>(part) * strides[dim] * size_of(x.dtype());
    if (static_cast<char*>(x.raw_data()) != static_cast<char*>(first.raw_data()) + offset) return false;
    for (int i = 0; i < x.rank(); ++i)
      if (x.size(i) > 1 && x.strides()[i] != strides[i < dim ? i : i + 1]) return false;
  }
  return true;
}

std::vector<Tensor> unbind(const Tensor& x, int dim) {
  check_defined("unbind", "x", x);
  dim = normalize_dim("unbind", dim, x.rank());
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < x.size(dim); ++i) parts.push_back(select(x, dim, i));
  record_results(
      "unbind", parts, {x}, [shape = x.shape(), dim, dtype = x.dtype()](const Gradients& g, NeededGradients) {
        const auto defined = [](const Tensor& part) { return part.defined(); };
        if (std::all_of(g.begin(), g.end(), defined) && are_slices_of_one_tensor(g, dim))
          return Gradients{g[0].alias(shape, shape.contiguous_strides())};
        const Device device = std::find_if(g.begin(), g.end(), defined)->device();
        const Tensor gx = std::all_of(g.begin(), g.end(), defined) ? Tensor::empty(shape, dtype, device)
                                                                   : Tensor::zeros(shape, dtype, device);
        for (size_t i = 0; i < g.size(); ++i)
          if (g[i].defined()) select(gx, dim, static_cast<int64_t>(i)).copy_from(g[i]);
        return Gradients{gx};
      });
  return parts;
}

}  // namespace tapeformer
