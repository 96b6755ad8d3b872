// Tests of matrix products whose operands are rounded to a lower precision. The errors must be proportional
// to the rounding errors of the operands, because the sums are computed in float32.
#include <doctest/doctest.h>

#include <cmath>

#include "core/device_control.h"
#include "ops/conv1d.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/lstm.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/op_table.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns the unit roundoff, which is the largest relative error of a value that is rounded to nearest.
// Truncation would have twice this error.
double unit_of(Precision precision) {
  if (precision == Precision::bfloat16) return std::ldexp(1, -8);
  return precision == Precision::tf32 ? std::ldexp(1, -11) : std::ldexp(1, -24);
}

bool is_emulated() {
  if constexpr (kHasCuda) return cuda::is_emulated();
  return false;
}

class PrecisionScope {
 public:
  PrecisionScope(Device device, Precision precision) : device_(device) { set(precision); }
  ~PrecisionScope() { set(Precision::float32); }
  PrecisionScope(const PrecisionScope&) = delete;
  PrecisionScope& operator=(const PrecisionScope&) = delete;

 private:
  void set(Precision precision) const { set_precision(device_, precision); }
  Device device_;
};

// Returns the result of a linear layer and the gradients of x, weight and bias, in float64 on the CPU.
// `inputs` are x, weight and bias, `dtype` is the dtype of x, and `result` is the dtype of the result.
std::vector<Tensor> compute_result_and_gradients(const std::vector<Tensor>& inputs, Device device,
                                                 DType dtype, Activation activation, double dropout,
                                                 std::optional<DType> result = {}) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    // The weight and the bias are never bfloat16.
    const DType input_dtype = leaves.empty() ? dtype : get_compute_dtype(dtype);
    leaves.push_back(set_requires_grad(input.to(input_dtype).to(device).alias()));
  }
  const Tensor y =
      linear(leaves[0], leaves[1], leaves[2], activation, {dropout, RandomStream(5, "linear")}, result);
  CHECK(y.dtype() == result.value_or(dtype));
  backward(y, normal(y.shape(), 17).to(DType::bfloat16).to(y.dtype()).to(device));
  std::vector<Tensor> outcome{detach(y).to(kCpu).to(DType::float64)};
  for (const Tensor& leaf : leaves) outcome.push_back(gradient(leaf).to(kCpu).to(DType::float64));
  return outcome;
}

std::vector<Tensor> get_inputs(int64_t rows, int64_t in, int64_t out) {
  return {normal({rows, in}, 1).to(DType::float32).to(DType::float64),
          normal({out, in}, 2).to(DType::float32).to(DType::float64),
          normal({out}, 3).to(DType::float32).to(DType::float64)};
}

// Checks that the errors of a linear layer and of its gradients are proportional to the unit roundoff of the
// operands.
void check_rounding(Device device) {
  for (const Precision precision : {Precision::float32, Precision::tf32, Precision::bfloat16}) {
    if (device.is_cpu() && precision == Precision::tf32) continue;
    for (const auto& size : {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1},
                             {64, 40, 24},
                             {70, 33, 31},
                             {129, 5, 132},
                             {256, 128, 128}}) {
      const int64_t rows = std::get<0>(size), in = std::get<1>(size), out = std::get<2>(size);
      CAPTURE(static_cast<int>(precision));
      CAPTURE(rows);
      const PrecisionScope scope(device, precision);
      const std::vector<Tensor> inputs = get_inputs(rows, in, out);
      const auto exact = compute_result_and_gradients(inputs, kCpu, DType::float64, Activation::none, 0),
                 found = compute_result_and_gradients(inputs, device, DType::float32, Activation::none, 0);
      // A linear layer with the absolute values of the inputs computes the sums of the absolute values of the
      // products. The error bounds of the products are proportional to these sums of absolute values.
      std::vector<Tensor> sizes;
      for (const Tensor& input : inputs) sizes.push_back(sqrt(square(input)));
      const Tensor g = sqrt(square(normal({rows, out}, 17).to(DType::bfloat16).to(DType::float64)));
      const Tensor leaves[] = {set_requires_grad(sizes[0].alias()), set_requires_grad(sizes[1].alias())};
      const Tensor terms = linear(leaves[0], leaves[1], {});
      backward(terms, g);
      const Tensor magnitudes[] = {detach(terms), gradient(leaves[0]), gradient(leaves[1])};
      const double unit = unit_of(precision);
      double squares = 0, of_terms = 0;
      for (size_t i = 0; i < 3; ++i) {
        const auto a = exact[i].to_vector(), b = found[i].to_vector(), m = magnitudes[i].to_vector();
        for (size_t n = 0; n < a.size(); ++n) {
          const double error = std::abs(a[n] - b[n]);
          // The second summand bounds the rounding errors of the float32 sum and of the addition of the bias.
          REQUIRE(error <= 4 * unit * m[n] + 1e-5 * (m[n] + 1));
          squares += error * error;
          of_terms += m[n] * m[n];
        }
      }
      // A device may compute small and unaligned matrices in float32 instead of TF32.
      const bool rounds = precision == Precision::bfloat16 ||
                          (precision == Precision::tf32 && (is_emulated() || in % 64 == 0));
      if (rows > 1 && rounds) CHECK(std::sqrt(squares / of_terms) > unit / 64);
      // The gradient of the bias is a sum in float32 and involves no product of rounded operands.
      CHECK(max_difference(found[3], exact[3]) < 1e-4);
    }
  }
}

// Checks that linear layers with float32 tensors, activation and dropout agree with float64 and are
// deterministic, if the precision of products is bfloat16.
void check_bfloat16_precision(Device device) {
  for (const auto& size : {std::tuple<int64_t, int64_t, int64_t>{3, 33, 31}, {70, 8, 132}, {0, 4, 3}})
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu})
      for (const double dropout : {0.0, 0.3}) {
        const int64_t rows = std::get<0>(size), in = std::get<1>(size), out = std::get<2>(size);
        CAPTURE(rows);
        CAPTURE(static_cast<int>(activation));
        const PrecisionScope scope(device, Precision::bfloat16);
        std::vector<Tensor> inputs = get_inputs(rows, in, out);
        inputs[0] = mul(inputs[0], 1 / std::sqrt(static_cast<double>(in)));
        // Rounds the inputs to bfloat16, so that relu sets the same elements to 0 as in float64.
        for (Tensor& input : inputs) input = input.to(DType::bfloat16).to(DType::float64);
        const auto exact = compute_result_and_gradients(inputs, kCpu, DType::float64, activation, dropout),
                   found = compute_result_and_gradients(inputs, device, DType::float32, activation, dropout),
                   again = compute_result_and_gradients(inputs, device, DType::float32, activation, dropout);
        for (size_t i = 0; i < found.size(); ++i) {
          CAPTURE(i);
          double largest = 1;
          for (const double value : exact[i].to_vector()) largest = std::max(largest, std::abs(value));
          CHECK(max_difference(found[i], exact[i]) < (i == 0 || i == 3 ? 1e-5 : 0.01) * largest);
          CHECK(max_difference(found[i], again[i]) == 0);
        }
      }
}

// Checks that linear layers with bfloat16 inputs agree with float64 and are deterministic, for bfloat16 and
// for float32 results.
void check_bfloat16_inputs(Device device) {
  for (const auto& size :
       {std::tuple<int64_t, int64_t, int64_t>{1, 1, 1}, {3, 33, 31}, {70, 8, 132}, {0, 4, 3}})
    for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu})
      for (const double dropout : {0.0, 0.3})
        for (const DType result : {DType::bfloat16, DType::float32}) {
          const int64_t rows = std::get<0>(size), in = std::get<1>(size), out = std::get<2>(size);
          CAPTURE(rows);
          CAPTURE(static_cast<int>(activation));
          CAPTURE(dropout);
          CAPTURE(static_cast<int>(result));
          std::vector<Tensor> inputs = get_inputs(rows, in, out);
          inputs[0] = mul(inputs[0], 1 / std::sqrt(static_cast<double>(in)));
          for (Tensor& input : inputs) input = input.to(DType::bfloat16).to(DType::float64);
          const auto exact = compute_result_and_gradients(inputs, kCpu, DType::float64, activation, dropout),
                     found = compute_result_and_gradients(inputs, device, DType::bfloat16, activation,
                                                          dropout, result),
                     again = compute_result_and_gradients(inputs, device, DType::bfloat16, activation,
                                                          dropout, result);
          for (size_t i = 0; i < found.size(); ++i) {
            CAPTURE(i);
            double largest = 1;
            for (const double value : exact[i].to_vector()) largest = std::max(largest, std::abs(value));
            CHECK(max_difference(found[i], exact[i]) < 0.01 * largest);
            CHECK(found[i].to_vector() == again[i].to_vector());
          }
        }
}

// Returns the float64 inputs of an LSTM, rounded to the dtype `rounding`: x (5, 70, 33), and for each
// direction two weights and two biases.
std::vector<Tensor> lstm_inputs(int64_t directions, DType rounding) {
  constexpr int64_t kIn = 33, kHidden = 20;
  std::vector<Tensor> inputs{normal({5, 70, kIn}, 1)};
  for (int64_t d = 0; d < directions; ++d)
    for (const Shape& shape :
         {Shape{4 * kHidden, kIn}, Shape{4 * kHidden, kHidden}, Shape{4 * kHidden}, Shape{4 * kHidden}})
      inputs.push_back(mul(normal(shape, 10 + static_cast<int>(inputs.size())), 0.2));
  for (Tensor& input : inputs) input = input.to(rounding).to(DType::float64);
  return inputs;
}

OpCase lstm_case(const std::vector<Tensor>& inputs) {
  const auto function = [](const std::vector<Tensor>& in) {
    std::vector<LstmWeights> weights;
    for (size_t i = 1; i < in.size(); i += 4) weights.push_back({in[i], in[i + 1], in[i + 2], in[i + 3]});
    return lstm(in[0], Tensor::from_vector<int64_t>({70, 0, 33, 1, 64}, {5}), weights);
  };
  return {"lstm", function, inputs};
}

// Returns the root mean square of a - b, relative to the root mean square of b.
double relative_error(const Tensor& a, const Tensor& b) {
  const auto found = a.to_vector(), expected = b.to_vector();
  double errors = 0, squares = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    errors += (found[i] - expected[i]) * (found[i] - expected[i]);
    squares += expected[i] * expected[i];
  }
  return std::sqrt(errors / squares);
}

// Checks that an LSTM with the precision bfloat16 is deterministic, and that its errors are proportional to
// the unit roundoff of bfloat16.
//
// Unlike the CPU, a CUDA device does not round the operands of the recurrent products. If the inputs are
// exact in bfloat16, the result and the gradients of the biases therefore have the accuracy of float32.
void check_lstm(Device device) {
  constexpr double kSingle = 1e-5;  // bound of the relative error of float32 after 70 steps
  const double unit = unit_of(Precision::bfloat16);
  for (const int64_t directions : {1, 2})
    for (const DType rounding : {DType::bfloat16, DType::float32}) {
      CAPTURE(directions);
      CAPTURE(name_of(rounding));
      const OpCase op = lstm_case(lstm_inputs(directions, rounding));
      const auto exact = compute_result_and_gradients(op, kCpu, DType::float64);
      const PrecisionScope scope(device, Precision::bfloat16);
      const auto found = compute_result_and_gradients(op, device, DType::float32),
                 again = compute_result_and_gradients(op, device, DType::float32);
      for (size_t i = 0; i < found.size(); ++i) {
        CAPTURE(i);  // 0 is the result, 1 the gradient of x, and the other indices are gradients of weights
        const bool is_product = i == 1 || (i >= 2 && (i - 2) % 4 < 2);
        const bool rounds_states = device.is_cpu() || rounding == DType::float32;
        const double error = relative_error(found[i], exact[i]);
        if (is_product || rounds_states) {
          CHECK(error > unit / 64);
          CHECK(error < (rounds_states ? 2 * unit : unit));
        } else {
          CHECK(error < kSingle);
        }
        CHECK(found[i].to_vector() == again[i].to_vector());
      }
    }
}

// Checks that a convolution returns the same bits with the precision bfloat16 as with float32.
void check_conv1d(Device device) {
  const OpCase op{"conv1d",
                  [](const std::vector<Tensor>& in) {
                    return conv1d(in[0], in[1], in[2], {}, {2, 1, 1});
                  },
                  {normal({3, 40, 12}, 1), normal({24, 3, 12}, 2), normal({24}, 3)}};
  const auto expected = compute_result_and_gradients(op, device, DType::float32);
  const PrecisionScope scope(device, Precision::bfloat16);
  const auto found = compute_result_and_gradients(op, device, DType::float32);
  for (size_t i = 0; i < found.size(); ++i) CHECK(found[i].to_vector() == expected[i].to_vector());
}

}  // namespace

TEST_CASE("cuda: errors of linear layers and of their gradients correspond to the rounding of operands") {
  for (const Device device : list_cuda_devices()) check_rounding(device);
}
TEST_CASE(
    "errors of linear layers on the CPU, and of their gradients, correspond to the rounding of operands") {
  check_rounding(kCpu);
}

TEST_CASE("cuda: bfloat16 layers with activation and dropout agree with float64 and are deterministic") {
  for (const Device device : list_cuda_devices()) check_bfloat16_precision(device);
}
TEST_CASE("bfloat16 layers on the CPU with activation and dropout agree with float64 and are deterministic") {
  check_bfloat16_precision(kCpu);
}

TEST_CASE("cuda: layers with bfloat16 inputs agree with float64 for both dtypes of the result") {
  for (const Device device : list_cuda_devices()) check_bfloat16_inputs(device);
}
TEST_CASE("layers on the CPU with bfloat16 inputs agree with float64 for both dtypes of the result") {
  check_bfloat16_inputs(kCpu);
}

TEST_CASE("cuda: errors of an LSTM in bfloat16 correspond to the rounding of operands") {
  for (const Device device : list_cuda_devices()) check_lstm(device);
}
TEST_CASE("errors of an LSTM in bfloat16 on the CPU correspond to the rounding of operands") {
  check_lstm(kCpu);
}

TEST_CASE("convolutions are computed in float32 in the precision bfloat16") {
  for (const Device device : list_devices()) check_conv1d(device);
}

TEST_CASE("a cast rounds its result and its gradient, and wrong dtypes of linear layers are errors") {
  const Tensor x = set_requires_grad(Tensor::from_vector<float>({1, 1.00390625f, -3}, {3}));
  const Tensor y = cast(x, DType::bfloat16);
  CHECK(y.to_vector() == std::vector<double>{1, 1, -3});
  backward(y, Tensor::from_vector<float>({0.5f, 1.00390625f, 2}, {3}).to(DType::bfloat16));
  CHECK(gradient(x).dtype() == DType::float32);
  CHECK(gradient(x).to_vector() == std::vector<double>{0.5, 1, 2});
  const Tensor rows = Tensor::zeros({2, 3}, DType::bfloat16), weight = Tensor::zeros({4, 3}, DType::float32);
  CHECK_THROWS_WITH_AS(linear(rows, weight.to(DType::float64), {}),
                       doctest::Contains("input is bfloat16 and weight float64"), ShapeError);
  CHECK_THROWS_WITH_AS(linear(rows.to(DType::float32), weight, {}, Activation::none, {}, DType::bfloat16),
                       doctest::Contains("does not support the result dtype bfloat16"), ShapeError);
}

TEST_CASE("cuda: bfloat16 products are summed in float32 for sums of any length") {
  constexpr int64_t kLong = 70001;
  for (const Device device : list_devices()) {
    const PrecisionScope scope(device, Precision::bfloat16);
    const auto ones = [](int64_t a, int64_t b) { return Tensor::full({a, b}, 1, DType::float32); };
    const Tensor wide = linear(ones(1, kLong).to(device), ones(1, kLong).to(device), {});
    CHECK(wide.item() == kLong);
    const Tensor weight = set_requires_grad(ones(2, 1).to(device).alias());
    const Tensor y = linear(ones(kLong, 1).to(device), weight, {});
    backward(y, Tensor::full(y.shape(), 1, DType::float32, device));
    for (const double value : gradient(weight).to_vector()) CHECK(value == kLong);
  }
}

TEST_CASE("cuda: results in bfloat16 are rounded once: parts of a long sum stay float32") {
  // The sum of the first half of a row is not exact in bfloat16. The sum of the whole row is 1.
  constexpr int64_t kHalf = 40001, kSize = 8;
  const Tensor rows = Tensor::full({kSize, 2 * kHalf}, 1);
  rows.view({kSize, kHalf - 1}, {2 * kHalf, 1}, kHalf).fill(-1);
  rows.view({kSize, 1}, {2 * kHalf, 1}, 2 * kHalf - 1).fill(0);
  for (const Device device : list_devices()) {
    const Tensor x = rows.to(DType::bfloat16).to(device),
                 weight = Tensor::full({kSize, 2 * kHalf}, 1, DType::float32, device);
    for (const Tensor& bias : {Tensor{}, Tensor::zeros({kSize}, DType::float32, device)})
      for (const double value : linear(x, weight, bias).to_vector()) CHECK(value == 1);
  }
}
