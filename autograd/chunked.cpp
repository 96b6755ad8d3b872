#include "autograd/chunked.h"

#include "autograd/recompute.h"

namespace tapeformer {
namespace {

Tensor make_leaf(const Tensor& x, bool wanted) {
  Tensor leaf = detach(x);
  if (wanted) set_requires_grad(leaf);
  return leaf;
}

void check_rows(const char* op, const Tensor& x) {
  check(x.rank() >= 1 && x.is_contiguous(), op, "the input of shape ", x.shape(),
        " must be contiguous and have rows");
}

RowsGradient make_chunk_replay(const RowsFunction& function) {
  return [function](const Tensor& rows, int64_t first, const Tensor& g) {
    const Tensor part = function(rows, first);
    if (requires_grad(part)) backward(part, g);
  };
}

}  // namespace

Tensor view_rows(const Tensor& x, int64_t first, int64_t last) {
  Shape shape = x.shape();
  shape[0] = last - first;
  return x.alias(shape, x.strides(), first * x.strides()[0]);
}

Tensor compute_in_chunks(const RowsFunction& function, const Tensor& x, int64_t chunks,
                         const std::vector<Tensor>& parameters, const RowsGradient& rows_gradient) {
  check_rows("chunked", x);
  const int64_t rows = x.size(0);
  Tensor result;
  {
    const NoGradScope no_grad;
    for_each_chunk(rows, chunks, [&](int64_t first, int64_t last) {
      const Tensor part = function(view_rows(x, first, last), first);
      check(part.rank() >= 1 && part.size(0) == last - first, "chunked", "the function returned shape ",
            part.shape(), " for ", last - first, " rows");
      if (!result.defined()) {
        Shape shape = part.shape();
        shape[0] = rows;
        result = Tensor::empty(shape, part.dtype(), part.device());
      }
      view_rows(result, first, last).copy_from(part);
    });
  }
  const std::vector<Tensor> sources = make_replay_inputs({x}, parameters);
  return record("chunked", result, sources,
                [run_backward = rows_gradient ? rows_gradient : make_chunk_replay(function), x = detach(x),
                 rows, chunks, count = sources.size()](const Tensor& gradient_any, NeededGradients needs) {
                  const Tensor g = gradient_any.is_contiguous() ? gradient_any : gradient_any.clone();
                  Gradients gradients(count);
                  if (needs[0]) gradients[0] = Tensor::zeros_like(x);
                  for_each_chunk(rows, chunks, [&](int64_t first, int64_t last) {
                    const Tensor leaf = make_leaf(view_rows(x, first, last), needs[0]);
                    {
                      const RecordingScope record_again(true);
                      run_backward(leaf, first, view_rows(g, first, last));
                    }
                    if (const Tensor gx = gradient(leaf); gx.defined())
                      view_rows(gradients[0], first, last).copy_from(gx);
                  });
                  return gradients;
                });
}

Tensor sum_in_chunks(const std::function<Tensor(const Tensor& rows, const std::vector<Tensor>& parameters,
                                                int64_t first)>& function,
                     const Tensor& x, int64_t chunks, const std::vector<Tensor>& parameters,
                     const std::function<Tensor(const Tensor& y, const Tensor& factor)>& multiply) {
  check_rows("sum_in_chunks", x);
  std::vector<Tensor> sources = {x}, leaves;
  sources.insert(sources.end(), parameters.begin(), parameters.end());
  for (const Tensor& parameter : parameters) leaves.push_back(make_leaf(parameter, requires_grad(parameter)));
  Gradients gradients(sources.size());
  const bool wanted = is_recording() && std::any_of(sources.begin(), sources.end(), requires_grad);
  if (wanted && requires_grad(x)) gradients[0] = Tensor::zeros_like(x);
  const Tensor total = Tensor::zeros({}, DType::float64, x.device());
  for_each_chunk(x.size(0), chunks, [&](int64_t first, int64_t last) {
    const Tensor leaf = make_leaf(view_rows(x, first, last), gradients[0].defined());
    const Tensor part = function(leaf, leaves, first);
    check(part.numel() == 1, "sum_in_chunks", "the function returned shape ", part.shape(), ", not a scalar");
    total.add_scaled(detach(part).view({}).to(DType::float64));
    if (!wanted || !requires_grad(part)) return;
    backward(part);
    if (const Tensor gx = gradient(leaf); gx.defined()) view_rows(gradients[0], first, last).copy_from(gx);
  });
  for (size_t i = 0; i < leaves.size(); ++i) gradients[i + 1] = gradient(leaves[i]);
  return record("sum_in_chunks", total.to(x.dtype()), sources, [gradients, multiply](const Tensor& g) {
    // If the gradient of the sum is 1, no product is needed. The gradient is compared with 1 only on the CPU,
    // because on a CUDA device, item() would wait for the device.
    if (g.device().is_cpu() && g.item() == 1) return gradients;
    Gradients result;
    for (const Tensor& one : gradients) result.push_back(one.defined() ? multiply(one, g) : one);
    return result;
  });
}

}  // namespace tapeformer
