#include "ops/softmax.h"

#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/kernels/softmax.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

struct Rows {
  Tensor x;  // contiguous
  int64_t rows = 0, classes = 0;
};

Rows as_rows(const char* op, const Tensor& x) {
  check(x.rank() >= 1 && x.size(-1) > 0, op, "the last dimension of shape ", x.shape(), " is empty");
  return {contiguous(x), x.numel() / x.size(-1), x.size(-1)};
}

// Log-sum-exp per row, (rows,), unrecorded.
Tensor row_lse(const char* op, const Rows& in) {
  const Tensor lse = Tensor::empty({in.rows}, in.x.dtype(), in.x.device());
  on_device(in.x.device(), op, [&] {
    visit_floating(op, in.x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::row_logsumexp(in.x.data<T>(), lse.data<T>(), in.rows, in.classes);
    });
  });
  return lse;
}

// Softmax per row, unrecorded.
Tensor row_probabilities(const char* op, const Rows& in) {
  const Tensor y = Tensor::empty_like(in.x);
  on_device(in.x.device(), op, [&] {
    visit_floating(op, in.x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::row_softmax(in.x.data<T>(), y.data<T>(), in.rows, in.classes);
    });
  });
  return y;
}

// Runs one of the two row gradients on a contiguous g.
template <class F>
Tensor row_gradient(const char* op, const Tensor& gradient, F&& kernel) {
  const Tensor g = gradient.is_contiguous() ? gradient : gradient.clone();
  const Tensor gx = Tensor::empty_like(g);
  on_device(g.device(), op, [&] { visit_floating(op, g.dtype(), [&](auto tag) { kernel(tag, g, gx); }); });
  return gx;
}

}  // namespace

Tensor softmax(const Tensor& x) {
  const Rows in = as_rows("softmax", x);
  const Tensor y = row_probabilities("softmax", in);
  return record(
      "softmax", y, {&in.x}, [y = detach(y), rows = in.rows, classes = in.classes](const Tensor& gradient) {
        return Gradients{row_gradient("softmax", gradient, [&](auto tag, const Tensor& g, const Tensor& gx) {
          using T = decltype(tag);
          cpu::row_softmax_backward(g.data<T>(), y.data<T>(), gx.data<T>(), rows, classes);
        })};
      });
}

Tensor log_softmax(const Tensor& x) {
  const Rows in = as_rows("log_softmax", x);
  Tensor y;
  {
    const NoGrad no_grad;
    y = reshape(sub(reshape(in.x, {in.rows, in.classes}), reshape(row_lse("log_softmax", in), {in.rows, 1})),
                x.shape());
  }
  return record("log_softmax", y, {&in.x},
                [y = detach(y), rows = in.rows, classes = in.classes](const Tensor& gradient) {
                  return Gradients{
                      row_gradient("log_softmax", gradient, [&](auto tag, const Tensor& g, const Tensor& gx) {
                        using T = decltype(tag);
                        cpu::row_log_softmax_backward(g.data<T>(), y.data<T>(), gx.data<T>(), rows, classes);
                      })};
                });
}

Tensor logsumexp(const Tensor& x) {
  const Rows in = as_rows("logsumexp", x);
  const Tensor lse = row_lse("logsumexp", in);
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
  check(logits.rank() == 2 && logits.size(1) > 0, "cross_entropy", "logits must be (rows, classes), not ",
        logits.shape());
  const int64_t row_count = logits.size(0), classes = logits.size(1);
  check(targets.shape() == Shape{row_count}, "cross_entropy", "targets ", targets.shape(), " for logits ",
        logits.shape());
  check(!weights.defined() || (weights.shape() == Shape{row_count} && weights.dtype() == DType::uint8),
        "cross_entropy", "weights must be uint8 ", Shape{row_count});
  const Rows in = as_rows("cross_entropy", logits);
  const Tensor index = checked_index("cross_entropy", targets, classes, logits.device());
  const Tensor lse = row_lse("cross_entropy", in);
  const Tensor plain_weights =
      weights.defined() ? weights.clone() : Tensor::full({row_count}, 1, DType::uint8);
  const uint8_t* const weight = plain_weights.data<uint8_t>();
  const int64_t* const target = index.data<int64_t>();
  const Tensor scale = Tensor::zeros({row_count}, logits.dtype(), logits.device());
  Tensor loss;
  on_device(logits.device(), "cross_entropy", [&] {
    visit_floating("cross_entropy", logits.dtype(), [&](auto tag) {
      using T = decltype(tag);
      double total = 0;
      int64_t counted = 0;
      for (int64_t row = 0; row < row_count; ++row)
        if (weight[row]) {
          total += lse.data<T>()[row] - in.x.data<T>()[row * classes + target[row]];
          ++counted;
        }
      const double inverse = counted ? 1.0 / static_cast<double>(counted) : 0;
      for (int64_t row = 0; row < row_count; ++row)
        scale.data<T>()[row] = weight[row] ? static_cast<T>(inverse) : T{0};
      loss = Tensor::full({}, total * inverse, logits.dtype());
    });
  });
  return record("cross_entropy", loss, {&in.x}, [x = detach(in.x), lse, index, scale](const Tensor& g) {
    const Tensor gx = Tensor::empty_like(x);
    const Tensor scaled = mul(scale, g);
    on_device(x.device(), "cross_entropy", [&] {
      visit_floating("cross_entropy", x.dtype(), [&](auto tag) {
        using T = decltype(tag);
        cpu::cross_entropy_backward(x.data<T>(), lse.data<T>(), index.data<int64_t>(), scaled.data<T>(),
                                    gx.data<T>(), x.size(0), x.size(1));
      });
    });
    return Gradients{gx};
  });
}

}  // namespace tapeformer
