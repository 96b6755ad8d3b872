#include <doctest/doctest.h>
#include <tapeformer/tapeformer.h>

#include <cmath>
#include <sstream>

#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Values = std::vector<double>;

std::string printed(const Tensor& tensor) {
  std::ostringstream text;
  text << tensor;
  return text.str();
}

}  // namespace

TEST_CASE("operators compute on tensors and numbers, and broadcast") {
  const Tensor a = Tensor::from_vector<float>({1, 2, 4}, {3}), b = Tensor::from_vector<float>({2, 4, 8}, {3});
  CHECK((a + b).to_vector() == Values{3, 6, 12});
  CHECK((a - b).to_vector() == Values{-1, -2, -4});
  CHECK((a * b).to_vector() == Values{2, 8, 32});
  CHECK((a / b).to_vector() == Values{0.5, 0.5, 0.5});
  CHECK((-a).to_vector() == Values{-1, -2, -4});
  CHECK((a + 1).to_vector() == Values{2, 3, 5});
  CHECK((1 + a).to_vector() == Values{2, 3, 5});
  CHECK((a - 1).to_vector() == Values{0, 1, 3});
  CHECK((1 - a).to_vector() == Values{0, -1, -3});
  CHECK((a * 3).to_vector() == Values{3, 6, 12});
  CHECK((3 * a).to_vector() == Values{3, 6, 12});
  CHECK((a / 2).to_vector() == Values{0.5, 1, 2});
  CHECK((8 / a).to_vector() == Values{8, 4, 2});
  CHECK((a + Tensor::from_vector<float>({10, 20}, {2, 1})).to_vector() == Values{11, 12, 14, 21, 22, 24});
  CHECK_THROWS_WITH_AS(a + Tensor::zeros({2}), "add: shapes (3,) and (2,) do not broadcast together",
                       ShapeError);
}

TEST_CASE("gradients pass through operators") {
  const Tensor x = set_requires_grad(Tensor::from_vector<double>({2, 5}, {2}));
  backward(sum((1 - x) * x / 4 + 3 / x - x));
  const Values found = gradient(x).to_vector();
  for (size_t i = 0; i < 2; ++i) {
    const double v = i == 0 ? 2 : 5;
    CHECK(found[i] == doctest::Approx((1 - 2 * v) / 4 - 3 / (v * v) - 1));
  }
}

TEST_CASE("a += b makes `a` a handle on a new tensor") {
  Tensor total = Tensor::from_vector<float>({1, 2}, {2});
  const Tensor before = total;
  const Tensor x = set_requires_grad(Tensor::from_vector<float>({3, 4}, {2}));
  total += x;
  total *= x;
  total -= 1;
  total /= 2;
  CHECK(total.to_vector() == Values{5.5, 11.5});
  CHECK(before.to_vector() == Values{1, 2});
  backward(sum(total));
  CHECK(gradient(x).to_vector() == Values{3.5, 5});  // (1 + 2 · 3) / 2 and (2 + 2 · 4) / 2
}

TEST_CASE("a += b throws for a leaf that requires a gradient, and for an undefined tensor") {
  Tensor w = set_requires_grad(Tensor::zeros({2}));
  CHECK_THROWS_WITH_AS(w -= 1,
                       "operator-=: the left-hand side is a leaf that requires a gradient; to update it in "
                       "place, call add_scaled",
                       ShapeError);
  CHECK(requires_grad(w));
  Tensor none;
  CHECK_THROWS_AS(none += w, ShapeError);
  CHECK_THROWS_AS(1 / none, ShapeError);
}

TEST_CASE(
    "mse_loss() and binary_cross_entropy_with_logits() are exact, also for large logits, and check shapes") {
  const Tensor x = Tensor::from_vector<double>({0.5, -2, 3}, {3}),
               t = Tensor::from_vector<double>({1, 0, 0.25}, {3});
  CHECK(mse_loss(x, t).item() == doctest::Approx((0.25 + 4 + 2.75 * 2.75) / 3));
  double expected = 0;
  for (size_t i = 0; i < 3; ++i) {
    const double p = 1 / (1 + std::exp(-x.to_vector()[i])), target = t.to_vector()[i];
    expected -= (target * std::log(p) + (1 - target) * std::log1p(-p)) / 3;
  }
  CHECK(binary_cross_entropy_with_logits(x, t).item() == doctest::Approx(expected));

  const Tensor large = Tensor::from_vector<float>({20, -20, 1000, -1000}, {4});
  const Tensor right = Tensor::from_vector<float>({1, 0, 1, 0}, {4}),
               wrong = Tensor::from_vector<float>({0, 1, 0, 1}, {4});
  CHECK(binary_cross_entropy_with_logits(large, right).item() ==
        doctest::Approx(std::log1p(std::exp(-20.0)) / 2).epsilon(1e-6));
  CHECK(binary_cross_entropy_with_logits(large, wrong).item() == doctest::Approx(510));

  CHECK_THROWS_WITH_AS(
      mse_loss(x, Tensor::zeros({3, 1}, DType::float64)),
      "mse_loss: the prediction (3,) float64 and target (3, 1) float64 must be equal in shape and "
      "dtype",
      ShapeError);
  CHECK_THROWS_AS(binary_cross_entropy_with_logits(x, t.to(DType::float32)), ShapeError);
  CHECK(std::isnan(mse_loss(Tensor::zeros({0}), Tensor::zeros({0})).item()));
}

TEST_CASE("randn() and uniform() depend only on the seed, the name and the step of their stream") {
  const Tensor x = randn({100, 100}, {1, "x"});
  CHECK(x.dtype() == DType::float32);
  CHECK(std::abs(mean(x).item()) < 0.05);
  CHECK(mean(square(x)).item() == doctest::Approx(1).epsilon(0.05));
  CHECK(max_difference(x, randn({100, 100}, {1, "x"})) == 0);
  CHECK(max_difference(x, randn({100, 100}, {2, "x"})) > 1);
  const Tensor u = uniform({10000}, -1, 3, RandomStream(1, "u"), DType::float64);
  CHECK(mean(u).item() == doctest::Approx(1).epsilon(0.05));
  for (const double value : u.to_vector()) CHECK((value > -1 && value < 3));
  CHECK_THROWS_AS(randn({2}, {1, "x"}, DType::int64), ShapeError);
  CHECK_THROWS_AS(uniform({2}, 1, 0, RandomStream(1, "u")), ShapeError);
}

TEST_CASE("tensors print in nested brackets with shape and dtype") {
  CHECK(printed({}) == "undefined tensor");
  CHECK(printed(Tensor::full({}, 2.5)) == "2.5 () float32");
  CHECK(printed(Tensor::from_vector<int64_t>({1, 2, 3}, {3})) == "[1, 2, 3] (3,) int64");
  CHECK(printed(Tensor::from_vector<float>({1, 2, 3, 4}, {2, 2})) == "[[1, 2],\n [3, 4]] (2, 2) float32");
  CHECK(printed(Tensor::zeros({2, 0})) == "[[],\n []] (2, 0) float32");
  CHECK(printed(Tensor::full({2000}, 1)) == "[1, 1, 1, ..., 1, 1, 1] (2000,) float32");
  CHECK(printed(Tensor::from_vector<float>({0.1F, NAN}, {2})) == "[0.1, nan] (2,) float32");
}

TEST_CASE("the CPU is always synchronised, and has the precisions float32 and bfloat16") {
  synchronize(kCpu);
  CHECK(get_precision(kCpu) == Precision::float32);
  set_precision(kCpu, Precision::bfloat16);
  CHECK(get_precision(kCpu) == Precision::bfloat16);
  CHECK(get_operand_dtype(Tensor::zeros({1})) == DType::bfloat16);
  set_precision(kCpu, Precision::float32);
  CHECK(get_operand_dtype(Tensor::zeros({1})) == DType::float32);
  CHECK_THROWS_WITH_AS(set_precision(kCpu, Precision::tf32), "set_precision: the CPU has no tf32 products",
                       DeviceError);
}

TEST_CASE("cuda: the precision of a device can be set, and the host can wait for a device") {
  for (const Device device : list_cuda_devices()) {
    CHECK(get_precision(device) == Precision::float32);
    set_precision(device, Precision::tf32);
    CHECK(get_precision(device) == Precision::tf32);
    set_precision(device, Precision::float32);
    const Tensor x = randn({3, 4}, {1, "x"}, DType::float32, device);
    const Tensor y = 2 * x + 1;
    synchronize(device);
    CHECK(max_difference(y.to(kCpu), 2 * randn({3, 4}, {1, "x"}) + 1) < 1e-6);
  }
}
