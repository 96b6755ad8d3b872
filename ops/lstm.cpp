#include "ops/lstm.h"

#include <algorithm>
#include <array>

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/lstm.h"
#include "ops/lengths.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "lstm";
constexpr int kWeights = 4;  // number of weight tensors per direction

void check_weights(const LstmWeights& w, const Tensor& x, int64_t hidden) {
  check(
      w.weight_ih.shape() == Shape{4 * hidden, x.size(2)} && w.weight_hh.shape() == Shape{4 * hidden, hidden},
      kOp, "weights ", w.weight_ih.shape(), " and ", w.weight_hh.shape(), " for input ", x.shape(),
      "; they must be (4 hidden, in) and (4 hidden, hidden)");
  check(w.bias_ih.shape() == Shape{4 * hidden} && w.bias_hh.shape() == Shape{4 * hidden}, kOp, "biases ",
        w.bias_ih.shape(), " and ", w.bias_hh.shape(), " must be ", Shape{4 * hidden});
  for (const Tensor* t : {&w.weight_ih, &w.weight_hh, &w.bias_ih, &w.bias_hh})
    check(t->dtype() == x.dtype(), kOp, "the weights are ", name_of(t->dtype()), " and the input ",
          name_of(x.dtype()), ", expected equal dtypes");
}

// Returns pointers to the weights of each direction. Weight w of direction d is at index d * kWeights + w.
template <class T>
std::array<LstmDirectionWeights<T>, 2> collect_pointers(const std::vector<Tensor>& weights) {
  std::array<LstmDirectionWeights<T>, 2> result{};
  for (size_t d = 0; d * kWeights < weights.size(); ++d) {
    const Tensor* const own = &weights[d * kWeights];
    result[d] = {own[0].data<T>(), own[1].data<T>(), own[2].data<T>(), own[3].data<T>()};
  }
  return result;
}

void check_arguments(const Tensor& input, const std::vector<LstmWeights>& directions) {
  check_defined(kOp, "the input", input);
  check(input.rank() == 3, kOp, "input must be (batch, frames, in), not ", input.shape());
  check(directions.size() == 1 || directions.size() == 2, kOp, "expected 1 or 2 directions, not ",
        directions.size());
  for (const LstmWeights& w : directions)
    check_defined(kOp, "weight_ih", w.weight_ih, "weight_hh", w.weight_hh, "bias_ih", w.bias_ih, "bias_hh",
                  w.bias_hh);
  check(directions[0].weight_hh.rank() == 2, kOp, "weight_hh must be (4 hidden, hidden), not ",
        directions[0].weight_hh.shape());
  for (const LstmWeights& w : directions) check_weights(w, input, directions[0].weight_hh.size(1));
}

// Allocates the needed gradients of the weights, and returns their addresses. The kernel writes one gradient
// for both biases of a direction, because these gradients are equal.
template <class T>
std::array<LstmDirectionGradients<T>, 2> get_gradient_rows(const std::vector<Tensor>& weights,
                                                           NeededGradients needs, Gradients& gradients) {
  std::array<LstmDirectionGradients<T>, 2> targets{};
  const auto target = [&](size_t w) -> T* {
    if (!needs[static_cast<int>(1 + w)]) return nullptr;
    gradients[1 + w] = Tensor::empty_like(weights[w]);
    return gradients[1 + w].data<T>();
  };
  for (size_t d = 0; d * kWeights < weights.size(); ++d) {
    const size_t first = d * kWeights;
    targets[d] = {target(first), target(first + 1), nullptr};
    T *const bias_ih = target(first + 2), *const bias_hh = target(first + 3);
    targets[d].bias = bias_ih ? bias_ih : bias_hh;
  }
  return targets;
}

// Copies the gradient of bias_ih to bias_hh, because the two biases enter the gates as a sum.
void share_bias_gradients(const Gradients& gradients) {
  for (size_t first = 1; first < gradients.size(); first += kWeights) {
    const Tensor &bias_ih = gradients[first + 2], &bias_hh = gradients[first + 3];
    if (bias_ih.defined() && bias_hh.defined()) bias_hh.copy_from(bias_ih);
  }
}

}  // namespace

Tensor lstm(const Tensor& input, const Tensor& lengths, const std::vector<LstmWeights>& directions) {
  check_arguments(input, directions);
  const Tensor x = contiguous(input);
  const auto count = static_cast<int64_t>(directions.size());
  const int64_t hidden = directions[0].weight_hh.size(1);
  const LstmShape shape{x.size(0), x.size(1), x.size(2), hidden, count};
  const Tensor host_lengths = prepare_lengths(kOp, "length", lengths, shape.batch, shape.frames);
  std::vector<Tensor> inputs = {x}, weights;
  for (const LstmWeights& w : directions)
    for (const Tensor* t : {&w.weight_ih, &w.weight_hh, &w.bias_ih, &w.bias_hh}) {
      inputs.push_back(contiguous(*t));
      weights.push_back(detach(inputs.back()));
    }
  const auto make = [&](const Shape& s) { return Tensor::empty(s, x.dtype(), x.device()); };
  const Tensor y = make({shape.batch, shape.frames, count * hidden});
  const Tensor gates = make({count, shape.batch, shape.frames, 4 * hidden});
  const Tensor cells = make({count, shape.batch, shape.frames, hidden});
  const int64_t* const frame_counts = host_lengths.data<int64_t>();
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    lstm_forward(backend, shape, x.data<T>(), frame_counts, collect_pointers<T>(weights).data(), y.data<T>(),
                 gates.data<T>(), cells.data<T>());
  });
  return record(kOp, y, inputs,
                [=, x = detach(x), y = detach(y)](const Tensor& gradient, NeededGradients needs) {
                  const Tensor g = contiguous(gradient);
                  Gradients gradients(1 + weights.size());
                  if (needs[0]) gradients[0] = Tensor::empty_like(x);
                  const int64_t* const counts = host_lengths.data<int64_t>();
                  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
                    const std::array<LstmDirectionGradients<T>, 2> targets =
                        get_gradient_rows<T>(weights, needs, gradients);
                    lstm_backward(backend, shape, g.data<T>(), x.data<T>(), counts,
                                  collect_pointers<T>(weights).data(), y.data<T>(), gates.data<T>(),
                                  cells.data<T>(), get_data_or_null<T>(gradients[0]), targets.data());
                  });
                  share_bias_gradients(gradients);
                  return gradients;
                });
}

}  // namespace tapeformer
