#include "ops/token_selection.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/token_selection.h"

namespace tapeformer {
namespace {

constexpr const char* kTop = "select_top_positions";
constexpr const char* kGather = "gather_tokens";
constexpr const char* kScatter = "scatter_mean_tokens";

// Returns the selection in contiguous memory. Throws ShapeError if the selection is not (batch, heads,
// clusters, count) int64 on the device of x.
Tensor check_selection(const char* op, const Tensor& x, const Tensor& selection) {
  check_defined(op, "x", x, "the selection", selection);
  check(selection.rank() == 4 && selection.dtype() == DType::int64, op,
        "the selection must be (batch, heads, clusters, count) int64, not ", selection.shape(), " ",
        name_of(selection.dtype()));
  check(selection.device() == x.device(), op, "x and the selection are on different devices");
  return make_contiguous(selection);
}

TokenSelection make_selection_shape(const Tensor& selection, int64_t length, int64_t dim) {
  return {.batch = selection.size(0),
          .length = length,
          .heads = selection.size(1),
          .clusters = selection.size(2),
          .count = selection.size(3),
          .dim = dim};
}

// Returns the selected rows of x. If weights (batch, length, heads) are defined, multiplies each row by the
// weight of its token.
Tensor gather_selected_rows(const Tensor& x_any, const Tensor& selection, const Tensor& weights) {
  const Tensor x = make_contiguous(x_any);
  TokenSelection s = make_selection_shape(selection, x.size(1), x.size(3));
  const Tensor y = Tensor::empty({s.batch, s.clusters, s.count, s.heads, s.dim}, x.dtype(), x.device());
  dispatch_floating(kGather, x, [&]<class T>(auto backend) {
    s.positions = selection.data<int64_t>();
    gather_selected_tokens(backend, s, x.data<T>(), get_data_or_null<Compute<T>>(weights), y.data<T>());
  });
  return y;
}

// For each token, returns the sum of the rows that the clusters contain for the token. If `weights` (batch,
// length, heads) is defined, returns the mean of these rows instead of the sum. If `weights` is defined, also
// writes 1 / n to `weights` for a token in n clusters, or 0 for a token in no cluster.
Tensor scatter_selected_rows(const Tensor& x_any, const Tensor& selection, int64_t length,
                             const Tensor& weights) {
  const Tensor x = make_contiguous(x_any);
  TokenSelection s = make_selection_shape(selection, length, x.size(4));
  const Tensor y = Tensor::empty({s.batch, length, s.heads, s.dim}, x.dtype(), x.device());
  dispatch_floating(kScatter, x, [&]<class T>(auto backend) {
    s.positions = selection.data<int64_t>();
    scatter_add_selected_tokens(backend, s, x.data<T>(), get_data_or_null<Compute<T>>(weights), y.data<T>());
  });
  return y;
}

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

Tensor gather_tokens(const Tensor& x, const Tensor& input) {
  const Tensor selection = check_selection(kGather, x, input);
  check(x.rank() == 4 && x.size(0) == selection.size(0) && x.size(2) == selection.size(1), kGather, "x ",
        x.shape(), " does not match the selection ", selection.shape());
  return record(kGather, gather_selected_rows(x, selection, {}), {&x},
                [selection, length = x.size(1)](const Tensor& g) {
                  return Gradients{scatter_selected_rows(g, selection, length, {})};
                });
}

Tensor scatter_mean_tokens(const Tensor& x, const Tensor& input, int64_t length) {
  const Tensor selection = check_selection(kScatter, x, input);
  check(x.rank() == 5 && x.size(0) == selection.size(0) && x.size(1) == selection.size(2) &&
            x.size(2) == selection.size(3) && x.size(3) == selection.size(1),
        kScatter, "x ", x.shape(), " does not match the selection ", selection.shape());
  const DType compute = x.dtype() == DType::bfloat16 ? DType::float32 : x.dtype();
  const Tensor weights = Tensor::empty({x.size(0), length, x.size(3)}, compute, x.device());
  return record(kScatter, scatter_selected_rows(x, selection, length, weights), {&x},
                [selection, weights](const Tensor& g) {
                  return Gradients{gather_selected_rows(g, selection, weights)};
                });
}

}  // namespace tapeformer
