#include "ops/softmax.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/kernels/softmax.h"
#include "ops/row_loss.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Returns x as a contiguous tensor. Throws ShapeError if the last dimension of x is empty.
Tensor check_rows(const char* op, const Tensor& x) {
  check_defined(op, "x", x);
  check(x.rank() >= 1 && x.size(-1) > 0, op, "the last dimension of shape ", x.shape(), " is empty");
  return contiguous(x);
}

int64_t count_rows(const Tensor& x) {
  return x.numel() / x.size(-1);
}

}  // namespace

Tensor softmax(const Tensor& input) {
  const Tensor x = check_rows("softmax", input);
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double("softmax", x, [&]<class T>(auto backend) {
    row_softmax(backend, x.data<T>(), y.data<T>(), count_rows(x), x.size(-1));
  });
  return record("softmax", y, {&x}, [y = detach(y)](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient), gx = Tensor::empty_like(g);
    dispatch_float_or_double("softmax", g, [&]<class T>(auto backend) {
      row_softmax_backward(backend, g.data<T>(), y.data<T>(), gx.data<T>(), count_rows(y), y.size(-1));
    });
    return Gradients{gx};
  });
}

Tensor log_softmax(const Tensor& input) {
  const Tensor x = check_rows("log_softmax", input);
  const Tensor y = Tensor::empty_like(x);
  dispatch_float_or_double("log_softmax", x, [&]<class T>(auto backend) {
    row_log_softmax(backend, x.data<T>(), y.data<T>(), count_rows(x), x.size(-1));
  });
  return record("log_softmax", y, {&x}, [y = detach(y)](const Tensor& gradient) {
    const Tensor g = make_contiguous(gradient), gx = Tensor::empty_like(g);
    dispatch_float_or_double("log_softmax", g, [&]<class T>(auto backend) {
      row_log_softmax_backward(backend, g.data<T>(), y.data<T>(), gx.data<T>(), count_rows(y), y.size(-1));
    });
    return Gradients{gx};
  });
}

Tensor logsumexp(const Tensor& input) {
  const Tensor x = check_rows("logsumexp", input);
  Shape shape, column = x.shape();
  for (int i = 0; i + 1 < x.rank(); ++i) shape.append(x.size(i));
  column[-1] = 1;
  const Tensor lse = Tensor::empty(shape, x.dtype(), x.device());
  dispatch_float_or_double("logsumexp", x, [&]<class T>(auto backend) {
    row_logsumexp(backend, x.data<T>(), lse.data<T>(), count_rows(x), x.size(-1));
  });
  return record("logsumexp", lse, {&x}, [x = detach(x), column](const Tensor& g) {
    return Gradients{mul(softmax(x), reshape(g, column))};
  });
}

Tensor cross_entropy(const Tensor& logits, const Tensor& targets, const Tensor& weights,
                     const CrossEntropyOptions& options) {
  constexpr const char* kOp = "cross_entropy";
  check_defined(kOp, "logits", logits, "targets", targets);
  check(logits.rank() == 2 && logits.size(1) > 0, kOp, "logits must be (rows, classes), not ",
        logits.shape());
  const int64_t rows = logits.size(0), classes = logits.size(1);
  check(targets.shape() == Shape{rows}, kOp, "targets ", targets.shape(), " do not match logits ",
        logits.shape());
  check(options.label_smoothing >= 0 && options.label_smoothing < 1 && options.z_loss >= 0, kOp,
        "label_smoothing ", options.label_smoothing, " must be in [0, 1) and z_loss ", options.z_loss,
        " at least 0");
  const Tensor x = contiguous(logits);
  const Tensor index = prepare_index(kOp, targets, classes, x.device());
  const Tensor scale = compute_row_weights(kOp, weights, rows, x.dtype(), x.device());
  const Tensor lse = Tensor::empty_like(scale), losses = Tensor::empty_like(scale);
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    cross_entropy_forward(backend, options, x.data<T>(), index.data<int64_t>(), lse.data<T>(),
                          losses.data<T>(), rows, classes);
  });
  const Tensor loss = compute_weighted_sum(kOp, losses, scale);
  return record(kOp, loss, {&x}, [options, x = detach(x), lse, index, scale](const Tensor& g) {
    const Tensor gx = Tensor::empty_like(x), scaled = multiply_by_scalar(kOp, scale, g);
    dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
      cross_entropy_backward(backend, options, x.data<T>(), lse.data<T>(), index.data<int64_t>(),
                             scaled.data<T>(), gx.data<T>(), x.size(0), x.size(1));
    });
    return Gradients{gx};
  });
}

}  // namespace tapeformer
