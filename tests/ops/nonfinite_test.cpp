// Tests that ops propagate NaN from arguments to results and gradients.
#include <doctest/doctest.h>

#include <bit>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/optimizer_step.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/softmax_attention.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

int64_t count_nan(const Tensor& x) {
  int64_t count = 0;
  for (const double value : x.to_vector()) count += std::isnan(value);
  return count;
}

// Returns a tensor of normally distributed numbers whose element `at` is NaN. The NaN has a nonzero payload,
// as in a corrupt file.
Tensor with_nan(const Shape& shape, int64_t at, DType dtype, Device device, int salt = 0) {
  const Tensor x = normal(shape, salt, dtype);
  if (dtype == DType::float32)
    x.data<float>()[at] = std::bit_cast<float>(0x7FC00001u);
  else
    x.data<double>()[at] = std::bit_cast<double>(uint64_t{0x7FF8000000000001u});
  return x.to(device);
}

template <class F>
void for_devices_and_dtypes(F f) {
  for (const Device device : list_devices())
    for (const DType dtype : {DType::float32, DType::float64}) {
      CAPTURE(device.to_string());
      CAPTURE(name_of(dtype));
      f(device, dtype);
    }
}

}  // namespace

TEST_CASE("relu propagates NaN to the result and passes the gradient, as in PyTorch") {
  for_devices_and_dtypes([](Device device, DType dtype) {
    const Tensor x = set_requires_grad(with_nan({37}, 5, dtype, device));
    const Tensor y = relu(x);
    CHECK(count_nan(y) == 1);
    backward(y, Tensor::full({37}, 2, dtype, device));
    CHECK(gradient(x).to_vector()[5] == 2);
  });
}

TEST_CASE("NaN in a bias reaches the loss through linear with relu, and the gradient of the weight") {
  for (const int64_t rows : {1, 3, 40}) {  // each number of rows uses a different code path
    CAPTURE(rows);
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor x = set_requires_grad(normal({rows, 9}, 1, dtype)),
                   weight = set_requires_grad(normal({20, 9}, 2, dtype)),
                   bias = set_requires_grad(with_nan({20}, 7, dtype, kCpu));
      const Tensor y = linear(x, weight, bias, Activation::relu);
      CHECK(count_nan(y) == rows);
      const Tensor loss = sum(square(y));
      CHECK(std::isnan(loss.item()));
      backward(loss);
      CHECK(count_nan(gradient(bias)) == 1);
      CHECK(count_nan(gradient(weight)) == 9);
    }
  }
  // With a bias, cuBLASLt computes relu in the epilogue of the product. Without a bias, linear() computes
  // relu in a separate kernel.
  for (const Device device : list_devices()) {
    const Tensor x = with_nan({5, 9}, 0, DType::float32, device), weight = normal({20, 9}, 2, DType::float32);
    CHECK(count_nan(linear(x, weight.to(device), {}, Activation::relu)) == 20);
  }
}

TEST_CASE("softmax of a row with NaN is NaN in all elements") {
  for_devices_and_dtypes([](Device device, DType dtype) {
    for (const int64_t classes : {7, 33, 2000}) {
      CAPTURE(classes);
      const Tensor x = with_nan({3, classes}, classes + 1, dtype, device);
      CHECK(count_nan(softmax(x)) == classes);
      CHECK(count_nan(log_softmax(x)) == classes);
      CHECK(count_nan(logsumexp(x)) == 1);
    }
  });
}

TEST_CASE("a row of -inf gives 0 in softmax and -inf in log_softmax, with finite gradients") {
  for_devices_and_dtypes([](Device device, DType dtype) {
    for (const int64_t classes : {1, 7, 33, 2000}) {
      CAPTURE(classes);
      const Tensor x = set_requires_grad(Tensor::full({2, classes}, -INFINITY, dtype, device));
      for (const double value : softmax(x).to_vector()) CHECK(value == 0);
      const Tensor y = log_softmax(x);
      for (const double value : y.to_vector()) CHECK(value == -INFINITY);
      backward(sum(exp(y)));
      for (const double value : gradient(x).to_vector()) CHECK(value == 0);
    }
  });
}

TEST_CASE("max() of elements with a NaN is NaN, and argmax() is the index of the first NaN") {
  for_devices_and_dtypes([](Device device, DType dtype) {
    const Tensor x = with_nan({3, 11}, 11 + 4, dtype, device);
    const auto largest = max(x, 1).to_vector();
    CHECK_FALSE(std::isnan(largest[0]));
    CHECK(std::isnan(largest[1]));
    CHECK(argmax(x).to_vector()[1] == 4);
    CHECK(count_nan(max(x, 0)) == 1);
  });
}

TEST_CASE("NaN in a query, key or value reaches the result of every attention") {
  constexpr int64_t kLength = 40, kHeads = 2, kDim = 8;
  const Shape shape{1, kLength, kHeads, kDim};
  const int64_t at = 3 * kHeads * kDim + 5;  // position 3, head 0
  const auto last = [&](const Tensor& y, int64_t position) {
    return std::isnan(y.to_vector()[static_cast<size_t>(position * kHeads * kDim)]);
  };
  for_devices_and_dtypes([&](Device device, DType dtype) {
    const Tensor x[] = {normal(shape, 1, dtype).to(device), normal(shape, 2, dtype).to(device),
                        normal(shape, 3, dtype).to(device)};
    for (int which = 0; which < 3; ++which) {
      CAPTURE(which);
      Tensor in[] = {x[0], x[1], x[2]};
      in[which] = with_nan(shape, at, dtype, device, which + 1);
      const int64_t position = which == 0 ? 3 : kLength - 1;  // later queries attend to the key and the value
      if (which != 2) {
        CHECK(last(softmax_attention(in[0], in[1], in[2], {.causal = true}), position));
        CHECK(last(linear_attention(in[0], in[1], in[2], {.causal = true}), position));
      } else {  // a NaN in a value makes one element of each later result NaN
        CHECK(count_nan(softmax_attention(in[0], in[1], in[2], {.causal = true})) >= kLength - 3);
        CHECK(count_nan(linear_attention(in[0], in[1], in[2], {.causal = true})) >= kLength - 3);
      }
    }
    LshOptions options;
    options.chunk_length = 8;
    options.causal = true;
    const Tensor q = with_nan(shape, at, dtype, device, 1);
    const Tensor buckets = compute_lsh_buckets(x[0], options, RandomStream(1, "lsh"));
    CHECK(last(lsh_attention(q, x[2], buckets, options), 3));
  });
}

TEST_CASE("squared norms are finite if and only if all elements are finite") {
  for_devices_and_dtypes([](Device device, DType dtype) {
    const Tensor large = Tensor::full({70000}, dtype == DType::float32 ? 3e38 : 1e100, dtype, device);
    const Tensor strided = normal({6, 4}, 1, dtype).to(device).view({4, 6}, {1, 4});
    const auto squares = compute_squared_norms({large, with_nan({70000}, 69999, dtype, device), strided,
                                                Tensor::zeros({0}, dtype, device)})
                             .to_vector();
    CHECK(std::isfinite(squares[0]));
    CHECK(std::isnan(squares[1]));
    CHECK(squares[2] == doctest::Approx(sum(square(strided)).item()));
    CHECK(squares[3] == 0);
  });
}

TEST_CASE("linear attention on the CPU does not read NaN in values of masked keys") {
  constexpr int64_t kLength = 70, kKeys = 40, kHeads = 2, kDim = 24;
  const Shape shape{1, kLength, kHeads, kDim};
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16}) {
    CAPTURE(name_of(dtype));
    // Computes linear attention with kKeys valid keys. The elements of the values of all other keys are
    // `masked`. Returns the result and the gradients.
    const auto compute = [&](double masked) {
      Tensor values = normal(shape, 3, DType::float64);
      for (int64_t i = kKeys * kHeads * kDim; i < values.numel(); ++i) values.data<double>()[i] = masked;
      std::vector<Tensor> tensors;
      for (const Tensor& x : {normal(shape, 1), normal(shape, 2), values})
        tensors.push_back(set_requires_grad(x.to(dtype)));
      const Tensor out =
          linear_attention(tensors[0], tensors[1], tensors[2],
                           {.causal = true, .key_lengths = Tensor::from_vector<int64_t>({kKeys}, {1})});
      backward(out, normal(shape, 4).to(dtype));
      std::vector<std::vector<double>> all = {out.to_vector()};
      for (const Tensor& x : tensors) all.push_back(gradient(x).to_vector());
      return all;
    };
    const auto expected = compute(0), found = compute(std::nan(""));
    for (size_t i = 0; i < expected.size(); ++i) {
      CAPTURE(i);
      CHECK(found[i] == expected[i]);
    }
  }
}
