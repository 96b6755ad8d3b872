#include "ops/split.h"

#include <algorithm>

#include "autograd/results.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns the view of elements [begin, begin + count) of one dimension. The call is not recorded.
Tensor view_part(const Tensor& x, int dim, int64_t begin, int64_t count) {
  Shape shape = x.shape();
  shape[dim] = count;
  return x.alias(shape, x.strides(), begin * x.strides()[dim]);
}

}  // namespace

std::vector<Tensor> split(const Tensor& x, int dim, const std::vector<int64_t>& sizes) {
  check_defined("split", "x", x);
  dim = normalize_dim("split", dim, x.rank());
  std::vector<Tensor> parts;
  int64_t begin = 0;
  for (const int64_t size : sizes) {
    check(size >= 0 && begin + size <= x.size(dim), "split", "parts of ", begin + size,
          " elements do not fit dimension ", dim, " of shape ", x.shape());
    parts.push_back(view_part(x, dim, begin, size));
    begin += size;
  }
  check(begin == x.size(dim), "split", "parts of ", begin, " elements do not fill dimension ", dim,
        " of shape ", x.shape());
  const auto gradient = [shape = x.shape(), dim, sizes, dtype = x.dtype(), device = x.device()](
                            const Gradients& g, NeededGradients) {
    const bool is_complete =
        std::all_of(g.begin(), g.end(), [](const Tensor& part) { return part.defined(); });
    const Tensor gx = is_complete ? Tensor::empty(shape, dtype, device) : Tensor::zeros(shape, dtype, device);
    int64_t first = 0;
    for (size_t i = 0; i < g.size(); ++i) {
      if (g[i].defined()) view_part(gx, dim, first, sizes[i]).copy_from(g[i]);
      first += sizes[i];
    }
    return Gradients{gx};
  };
  record_results("split", parts, {x}, gradient);
  return parts;
}

Tensor unflatten(const Tensor& x, int dim, int64_t size) {
  check_defined("unflatten", "x", x);
  dim = normalize_dim("unflatten", dim, x.rank());
  check(size > 0 && x.size(dim) % size == 0, "unflatten", "dimension ", dim, " of shape ", x.shape(),
        " is no multiple of ", size);
  Shape shape, strides;
  for (int i = 0; i < x.rank(); ++i) {
    shape.append(i == dim ? x.size(i) / size : x.size(i));
    strides.append(i == dim ? x.strides()[i] * size : x.strides()[i]);
    if (i != dim) continue;
    shape.append(size);
    strides.append(x.strides()[i]);
  }
  return record("unflatten", x.alias(shape, strides), {&x}, [from = x.shape()](const Tensor& g) {
    return Gradients{(g.is_contiguous() ? g : g.clone()).view(from)};
  });
}

Tensor repeat_interleave(const Tensor& x, int dim, int64_t count) {
  check_defined("repeat_interleave", "x", x);
  dim = normalize_dim("repeat_interleave", dim, x.rank());
  if (count == 1) return x;
  const std::vector<Tensor> copies(static_cast<size_t>(count), contiguous(x));
  Shape shape = x.shape();
  shape[dim] *= count;
  return reshape(stack(copies, dim + 1), shape);
}

}  // namespace tapeformer
