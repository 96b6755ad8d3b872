#include "ops/inference.h"

#include <doctest/doctest.h>

#include "core/device_control.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("DecodingLinear equals linear() for few and for many rows") {
  const NoGrad no_grad;
  for (const int64_t rows : {1, 4, 5, 6, 7, 12, 64})
    for (const int64_t out : {1, 7, 8, 17, 30})
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        CAPTURE(rows);
        CAPTURE(out);
        constexpr int64_t kIn = 37;
        const Tensor x = normal({rows, kIn}, 1), weight = normal({out, kIn}, 2), bias = normal({out}, 3);
        const Tensor y = Tensor::full({rows, out}, 7, DType::float64), scratch = y.clone();
        DecodingLinear(weight, bias, rows).into(x, activation, y, scratch);
        CHECK(max_difference(y, linear(x, weight, bias, activation)) < 1e-14 * kIn);
      }
}

TEST_CASE("DecodingLinear in bfloat16 rounds operands in the same way as linear()") {
  const NoGrad no_grad;
  set_precision(kCpu, Precision::bfloat16);
  for (const int64_t rows : {1, 4, 5, 16, 21, 64})
    for (const int64_t out : {1, 17, 130})
      for (const Activation activation : {Activation::none, Activation::gelu}) {
        CAPTURE(rows);
        CAPTURE(out);
        constexpr int64_t kIn = 37;
        const Tensor x = normal({rows, kIn}, 1, DType::float32),
                     weight = normal({out, kIn}, 2, DType::float32), bias = normal({out}, 3, DType::float32);
        const Tensor y = Tensor::full({rows, out}, 7), scratch = y.clone();
        DecodingLinear(weight, bias, rows).into(x, activation, y, scratch);
        CHECK(max_difference(y, linear(x, weight, bias, activation)) < 1e-5);
        const auto rounded = [](const Tensor& t) { return t.to(DType::bfloat16).to(DType::float64); };
        const Tensor exact = linear(rounded(x), rounded(weight), bias.to(DType::float64), activation);
        CHECK(max_difference(y.to(DType::float64), exact) < 1e-4);
      }
  set_precision(kCpu, Precision::float32);
}

TEST_CASE("errors about arguments of DecodingLinear contain the mismatched shapes") {
  const DecodingLinear map(normal({3, 4}, 1), normal({3}, 2), 8);
  CHECK_THROWS_AS(map.into(normal({8, 5}, 3), Activation::none, normal({8, 3}, 4)), ShapeError);
  CHECK_THROWS_AS(map.into(normal({8, 4}, 3), Activation::none, normal({8, 4}, 4)), ShapeError);
}
