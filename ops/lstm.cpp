#include "ops/lstm.h"

#include <algorithm>
#include <array>

#include "ops/kernels/lstm.h"
#include "ops/lengths.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "lstm";
constexpr int kWeights = 4;  // tensors of a direction

void check_weights(const LstmWeights& w, const Tensor& x, int64_t hidden) {
  check(
      w.weight_ih.shape() == Shape{4 * hidden, x.size(2)} && w.weight_hh.shape() == Shape{4 * hidden, hidden},
      kOp, "weights ", w.weight_ih.shape(), " and ", w.weight_hh.shape(), " for input ", x.shape(),
      "; they must be (4 hidden, in) and (4 hidden, hidden)");
  check(w.bias_ih.shape() == Shape{4 * hidden} && w.bias_hh.shape() == Shape{4 * hidden}, kOp, "biases ",
        w.bias_ih.shape(), " and ", w.bias_hh.shape(), " must be ", Shape{4 * hidden});
  for (const Tensor* t : {&w.weight_ih, &w.weight_hh, &w.bias_ih, &w.bias_hh})
    check(t->dtype() == x.dtype(), kOp, "weights of ", name_of(t->dtype()), " for input of ",
          name_of(x.dtype()));
}

// Weights of both directions in one list; weight w of direction d is at d * kWeights + w.
template <class T>
std::array<LstmDirection<T>, 2> pointers(const std::vector<Tensor>& weights) {
  std::array<LstmDirection<T>, 2> result{};
  for (size_t d = 0; d * kWeights < weights.size(); ++d) {
    const Tensor* const own = &weights[d * kWeights];
    result[d] = {own[0].data<T>(), own[1].data<T>(), own[2].data<T>(), own[3].data<T>()};
  }
  return result;
}

}  // namespace

Tensor lstm(const Tensor& input, const Tensor& lengths, const std::vector<LstmWeights>& directions) {
  check_defined(kOp, "the input", input);
  check(input.rank() == 3, kOp, "input must be (batch, frames, in), not ", input.shape());
  check(directions.size() == 1 || directions.size() == 2, kOp, directions.size(),
        " directions; there is one, or there are two");
  for (const LstmWeights& w : directions)
    check_defined(kOp, "weight_ih", w.weight_ih, "weight_hh", w.weight_hh, "bias_ih", w.bias_ih, "bias_hh",
                  w.bias_hh);
  const Tensor x = contiguous(input);
  const auto count = static_cast<int64_t>(directions.size());
  check(directions[0].weight_hh.rank() == 2, kOp, "weight_hh must be (4 hidden, hidden), not ",
        directions[0].weight_hh.shape());
  const int64_t hidden = directions[0].weight_hh.size(1);
  const LstmShape shape{x.size(0), x.size(1), x.size(2), hidden, count};
  std::vector<Tensor> inputs = {x};
  std::vector<Tensor> weights;
  for (const LstmWeights& direction : directions) {
    check_weights(direction, x, hidden);
    for (const Tensor* t :
         {&direction.weight_ih, &direction.weight_hh, &direction.bias_ih, &direction.bias_hh}) {
      inputs.push_back(contiguous(*t));
      weights.push_back(detach(inputs.back()));
    }
  }
  const Tensor frame_counts = checked_lengths(kOp, "length", lengths, shape.batch, shape.frames);
  const auto make = [&](const Shape& s) { return Tensor::empty(s, x.dtype(), x.device()); };
  const Tensor y = make({shape.batch, shape.frames, count * hidden});
  const Tensor gates = make({count, shape.batch, shape.frames, 4 * hidden});
  const Tensor cells = make({count, shape.batch, shape.frames, hidden});
  const int64_t* const counts = frame_counts.data<int64_t>();  // of the host on both machines
  visit_floating(kOp, x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](auto kernel) {
      kernel(shape, x.data<T>(), counts, pointers<T>(weights).data(), y.data<T>(), gates.data<T>(),
             cells.data<T>());
    };
    on_device(
        x.device(), kOp, [&] { run([](auto... a) { cpu::lstm_forward<T>(a...); }); },
        [&] { run([](auto... a) { cuda::lstm_forward<T>(a...); }); });
  });
  return record(kOp, y, inputs, [=, x = detach(x), y = detach(y)](const Tensor& gradient, Needs needs) {
    const Tensor g = contiguous(gradient);
    Gradients result(1 + weights.size());
    if (needs[0]) result[0] = Tensor::empty_like(x);
    const int64_t* const of_host = frame_counts.data<int64_t>();
    visit_floating(kOp, x.dtype(), [&](auto tag) {
      using T = decltype(tag);
      const auto run = [&](auto kernel) {
        std::array<LstmGradient<T>, 2> out{};
        for (size_t d = 0; d * kWeights < weights.size(); ++d) {
          const size_t first = d * kWeights;
          auto want = [&](size_t w) -> T* {
            if (!needs[static_cast<int>(1 + first + w)]) return nullptr;
            result[1 + first + w] = Tensor::empty_like(weights[first + w]);
            return result[1 + first + w].template data<T>();
          };
          out[d] = {want(0), want(1), nullptr};
          T* const bias_ih = want(2);
          T* const bias_hh = want(3);
          out[d].bias = bias_ih ? bias_ih : bias_hh;
        }
        kernel(shape, g.data<T>(), x.data<T>(), of_host, pointers<T>(weights).data(), y.data<T>(),
               gates.data<T>(), cells.data<T>(), needs[0] ? result[0].data<T>() : nullptr, out.data());
      };
      on_device(
          x.device(), kOp, [&] { run([](auto... a) { cpu::lstm_backward<T>(a...); }); },
          [&] { run([](auto... a) { cuda::lstm_backward<T>(a...); }); });
    });
    for (size_t d = 0; d * kWeights < weights.size(); ++d) {
      const Tensor &bias_ih = result[1 + d * kWeights + 2], &bias_hh = result[1 + d * kWeights + 3];
      if (bias_ih.defined() && bias_hh.defined()) bias_hh.copy_from(bias_ih);
    }
    return result;
  });
}

}  // namespace tapeformer
