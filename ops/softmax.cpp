#include "ops/softmax.h"

#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/kernels/softmax.h"
#include "ops/row_loss.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

struct Rows {
  Tensor x;  // contiguous
  int64_t rows = 0, classes = 0;
};

Rows as_rows(const char* op, const Tensor& x) {
  check_defined(op, "x", x);
  check(x.rank() >= 1 && x.size(-1) > 0, op, "the last dimension of shape ", x.shape(), " is empty");
  return {contiguous(x), x.numel() / x.size(-1), x.size(-1)};
}

// Runs on_cpu or on_cuda on the data of x and out, of the shape of the rows.
template <class OnCpu, class OnCuda>
void run_rows(const char* op, const Rows& in, const Tensor& out, OnCpu on_cpu, OnCuda on_cuda) {
  visit_floating(op, in.x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    on_device(
        in.x.device(), op, [&] { on_cpu(in.x.data<T>(), out.data<T>(), in.rows, in.classes); },
        [&] { on_cuda(in.x.data<T>(), out.data<T>(), in.rows, in.classes); });
  });
}

// The same for gradients, of g, y and gx.
template <class OnCpu, class OnCuda>
Tensor row_gradient(const char* op, const Tensor& gradient, const Rows& y, OnCpu on_cpu, OnCuda on_cuda) {
  const Tensor g = gradient.is_contiguous() ? gradient : gradient.clone();
  const Tensor gx = Tensor::empty_like(g);
  visit_floating(op, g.dtype(), [&](auto tag) {
    using T = decltype(tag);
    on_device(
        g.device(), op, [&] { on_cpu(g.data<T>(), y.x.data<T>(), gx.data<T>(), y.rows, y.classes); },
        [&] { on_cuda(g.data<T>(), y.x.data<T>(), gx.data<T>(), y.rows, y.classes); });
  });
  return gx;
}

// Softmax per row, unrecorded.
Tensor row_probabilities(const char* op, const Rows& in) {
  const Tensor y = Tensor::empty_like(in.x);
  run_rows(
      op, in, y, [](auto... a) { cpu::row_softmax(a...); }, [](auto... a) { cuda::row_softmax(a...); });
  return y;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  const Rows in = as_rows("softmax", x);
  const Tensor y = row_probabilities("softmax", in);
  return record("softmax", y, {&in.x}, [y = Rows{detach(y), in.rows, in.classes}](const Tensor& g) {
    return Gradients{row_gradient(
        "softmax", g, y, [](auto... a) { cpu::row_softmax_backward(a...); },
        [](auto... a) { cuda::row_softmax_backward(a...); })};
  });
}

Tensor log_softmax(const Tensor& x) {
  const Rows in = as_rows("log_softmax", x);
  const Tensor y = Tensor::empty_like(in.x);
  run_rows(
      "log_softmax", in, y, [](auto... a) { cpu::row_log_softmax(a...); },
      [](auto... a) { cuda::row_log_softmax(a...); });
  return record("log_softmax", y, {&in.x}, [y = Rows{detach(y), in.rows, in.classes}](const Tensor& g) {
    return Gradients{row_gradient(
        "log_softmax", g, y, [](auto... a) { cpu::row_log_softmax_backward(a...); },
        [](auto... a) { cuda::row_log_softmax_backward(a...); })};
  });
}

Tensor logsumexp(const Tensor& x) {
  const Rows in = as_rows("logsumexp", x);
  const Tensor lse = Tensor::empty({in.rows}, in.x.dtype(), in.x.device());
  run_rows(
      "logsumexp", in, lse, [](auto... a) { cpu::row_logsumexp(a...); },
      [](auto... a) { cuda::row_logsumexp(a...); });
  Shape shape;
  for (int i = 0; i + 1 < x.rank(); ++i) shape.append(x.size(i));
  return record("logsumexp", lse.view(shape), {&in.x},
                [in = Rows{detach(in.x), in.rows, in.classes}](const Tensor& g) {
                  Shape column = in.x.shape();
                  column[-1] = 1;
                  return Gradients{mul(row_probabilities("logsumexp", in), reshape(g, column))};
                });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights) {
  check_defined("cross_entropy", "logits", logits, "targets", targets);
  check(logits.rank() == 2 && logits.size(1) > 0, "cross_entropy", "logits must be (rows, classes), not ",
        logits.shape());
  const int64_t row_count = logits.size(0), classes = logits.size(1);
  check(targets.shape() == Shape{row_count}, "cross_entropy", "targets ", targets.shape(), " for logits ",
        logits.shape());
  const Rows in = as_rows("cross_entropy", logits);
  const Tensor index = checked_index("cross_entropy", targets, classes, logits.device());
  const Tensor scale = row_weights("cross_entropy", weights, row_count, logits.dtype(), logits.device());
  const Tensor lse = Tensor::empty_like(scale), losses = Tensor::empty_like(scale);
  visit_floating("cross_entropy", logits.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      kernel(in.x.data<T>(), index.data<int64_t>(), lse.data<T>(), losses.data<T>(), row_count, classes);
    };
    on_device(
        logits.device(), "cross_entropy", [&] { run([](auto... a) { cpu::cross_entropy_forward(a...); }); },
        [&] { run([](auto... a) { cuda::cross_entropy_forward(a...); }); });
  });
  const Tensor loss = weighted_sum("cross_entropy", losses, scale);
  return record("cross_entropy", loss, {&in.x}, [x = detach(in.x), lse, index, scale](const Tensor& g) {
    const Tensor gx = Tensor::empty_like(x);
    const Tensor scaled = multiplied_by("cross_entropy", scale, g);
    visit_floating("cross_entropy", x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const auto run = [&](auto kernel) {
        kernel(x.data<T>(), lse.data<T>(), index.data<int64_t>(), scaled.data<T>(), gx.data<T>(), x.size(0),
               x.size(1));
      };
      on_device(
          x.device(), "cross_entropy", [&] { run([](auto... a) { cpu::cross_entropy_backward(a...); }); },
          [&] { run([](auto... a) { cuda::cross_entropy_backward(a...); }); });
    });
    return Gradients{gx};
  });
}

}  // namespace tapeformer
