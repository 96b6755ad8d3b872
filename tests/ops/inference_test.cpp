#include "ops/inference.h"

#include <doctest/doctest.h>

#include <array>
#include <cmath>

#include "core/device_control.h"
#include "ops/kernels/linear.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/operators.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("DecodingLinear equals linear() for few and for many rows") {
  const NoGradScope no_grad;
  for (const int64_t rows : {1, 4, 5, 6, 7, 12, 64})
    for (const int64_t out : {1, 7, 8, 17, 30})
      for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
        CAPTURE(rows);
        CAPTURE(out);
        constexpr int64_t kIn = 37;
        const Tensor x = normal({rows, kIn}, 1), weight = normal({out, kIn}, 2), bias = normal({out}, 3);
        const Tensor y = Tensor::full({rows, out}, 7, DType::float64), scratch = y.clone();
        DecodingLinear(weight, bias, rows).forward_into(x, activation, y, scratch);
        CHECK(max_difference(y, linear(x, weight, bias, activation)) < 1e-14 * kIn);
      }
}

TEST_CASE("DecodingLinear in bfloat16 rounds operands in the same way as linear()") {
  const NoGradScope no_grad;
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
        DecodingLinear(weight, bias, rows).forward_into(x, activation, y, scratch);
        CHECK(max_difference(y, linear(x, weight, bias, activation)) < 1e-5);
        const auto rounded = [](const Tensor& t) { return t.to(DType::bfloat16).to(DType::float64); };
        const Tensor exact = linear(rounded(x), rounded(weight), bias.to(DType::float64), activation);
        CHECK(max_difference(y.to(DType::float64), exact) < 1e-4);
      }
  set_precision(kCpu, Precision::float32);
}

namespace {

// Returns whether map(x) computes each row of x (64, in) with the same bits for batches of other sizes.
template <class Map>
bool rows_are_independent(const Tensor& x, Map&& map) {
  const Tensor all = map(x);
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 15, 16, 17, 33})
    for (const int64_t first : {int64_t{0}, 64 - rows}) {
      const Tensor some = map(contiguous(slice(x, 0, first, first + rows)));
      if (some.to_vector() != contiguous(slice(all, 0, first, first + rows)).to_vector()) return false;
    }
  return true;
}

}  // namespace

TEST_CASE("the result of a row of DecodingLinear in bfloat16 does not depend on the number of rows") {
  const NoGradScope no_grad;
  // Without oneDNN and AMX, this is also true for float32, and for linear() in bfloat16.
  const bool uses_own_products = cpu::get_gemm_library_name() == "Tapeformer and OpenBLAS";
  for (const Precision precision : {Precision::bfloat16, Precision::float32}) {
    if (precision == Precision::float32 && !uses_own_products) continue;
    set_precision(kCpu, precision);
    for (const int64_t in : {1, 37, 64, 700})
      for (const int64_t out : {1, 17, 130}) {
        CAPTURE(in);
        CAPTURE(out);
        const Tensor x = normal({64, in}, 1, DType::float32), weight = normal({out, in}, 2, DType::float32),
                     bias = normal({out}, 3, DType::float32);
        CHECK(rows_are_independent(x, [&](const Tensor& rows) {
          const Tensor y = Tensor::empty({rows.size(0), out}), scratch = y.clone();
          DecodingLinear(weight, bias, rows.size(0)).forward_into(rows, Activation::gelu, y, scratch);
          return y;
        }));
        if (uses_own_products && precision == Precision::bfloat16)
          CHECK(rows_are_independent(
              x, [&](const Tensor& rows) { return linear(rows, weight, bias, Activation::gelu); }));
      }
  }
  set_precision(kCpu, Precision::float32);
}

namespace {

// The inputs of DecodingLinear::forward_residual_norm_into().
struct NormInputs {
  Tensor x, weight, bias, residual, norm_weight, norm_bias;
  NormInputs(int64_t rows, int64_t in, int64_t out, DType dtype)
      : x(normal({rows, in}, 1, dtype)),
        weight(normal({out, in}, 2, dtype)),
        bias(normal({out}, 3, dtype)),
        residual(normal({rows, out}, 4, dtype)),
        norm_weight(uniform({out}, 0.5, 2, 5, dtype)),
        norm_bias(normal({out}, 6, dtype)) {}
  Tensor expected() const {
    return layer_norm(add(residual, linear(x, weight, bias)), norm_weight, norm_bias);
  }
};

}  // namespace

// Rounds by the definition of the type Q8_0 with float32 scales.
TEST_CASE(
    "multiply_heads_into multiplies each head by its own matrix, and a row does not depend on other rows") {
  const NoGradScope no_grad;
  for (const DType dtype : {DType::float32, DType::float64})
    for (const auto& [rows, heads, dim, width] : {std::array<int64_t, 4>{1, 9, 64, 64},
                                                  {3, 2, 5, 7},
                                                  {2, 1, 1, 1},
                                                  {5, 3, 17, 70},
                                                  {40, 8, 32, 33}}) {
      const Tensor x = normal({rows, heads, dim}, 1, dtype), weight = normal({heads, dim, width}, 2, dtype);
      const Tensor out = Tensor::full({rows, heads, width}, 7, dtype),
                   last = Tensor::empty({1, heads, width}, dtype);
      multiply_heads_into(x, weight, out);
      const Tensor expected =
          permute(matmul(permute(x.to(DType::float64), {1, 0, 2}), weight.to(DType::float64)), {1, 0, 2});
      CHECK(max_difference(out.to(DType::float64), expected) < (dtype == DType::float32 ? 2e-5 : 1e-13));
      multiply_heads_into(slice(x, 0, rows - 1, rows), weight, last);
      CHECK(max_difference(last, slice(out, 0, rows - 1, rows)) == 0);
    }
  const Tensor x = normal({2, 3, 4}, 1), out = normal({2, 3, 6}, 2);
  CHECK_THROWS_WITH_AS(multiply_heads_into(x, normal({3, 5, 6}, 3), out),
                       doctest::Contains("(2, 3, 4) and the weight (3, 5, 6)"), ShapeError);
}

TEST_CASE("a linear layer in 8-bit integers has the results of the rounded weight") {
  const NoGradScope no_grad;
  for (const int64_t rows : {1, 2, 4, 7})
    for (const auto& [in, out] : {std::pair(32, 16), {70, 130}, {576, 321}, {5, 3}}) {
      const Tensor x = normal({rows, in}, 1, DType::float32), weight = normal({out, in}, 2, DType::float32),
                   bias = normal({out}, 3, DType::float32);
      slice(weight, 0, 1, 2).fill(0);
      const Tensor rounded = weight.clone();
      round_to_int8_blocks(rounded);
      double worst = 0;
      for (int64_t i = 0; i < out; ++i)
        for (int64_t first = 0; first < in; first += 32) {
          const float *const from = weight.data<float>() + i * in, *const to = rounded.data<float>() + i * in;
          const int64_t last = std::min<int64_t>(first + 32, in);
          float largest = 0;
          for (int64_t k = first; k < last; ++k) largest = std::max(largest, std::abs(from[k]));
          for (int64_t k = first; k < last; ++k) {
            const float steps = largest > 0 ? std::round(from[k] / (largest / 127)) : 0;
            worst = std::max(worst, std::abs(static_cast<double>(to[k] - steps * (largest / 127))));
          }
        }
      CHECK(worst == 0);
      const Tensor y = Tensor::empty({rows, out}, DType::float32), scratch = y.clone();
      for (const Tensor& given : {weight, rounded}) {
        DecodingLinear(given, bias, rows, WeightFormat::int8).forward_into(x, Activation::silu, y, scratch);
        CHECK(max_difference(y, silu(linear(x, rounded, bias))) < 2e-4);
      }
    }
  CHECK_THROWS_AS(DecodingLinear(normal({2, 3}, 1, DType::float64), {}, 1, WeightFormat::int8),
                  std::invalid_argument);
  CHECK_THROWS_AS(round_to_int8_blocks(normal({3}, 1, DType::float32)), ShapeError);
}

TEST_CASE("a linear layer with the norm of its sum equals the ops") {
  const NoGradScope no_grad;
  for (const int64_t rows : {1, 5, 64})
    for (const int64_t out : {1, 8, 17}) {
      const NormInputs inputs(rows, 37, out, DType::float64);
      const Tensor change = Tensor::empty({rows, out}, DType::float64), y = change.clone();
      DecodingLinear(inputs.weight, inputs.bias, rows)
          .forward_residual_norm_into(inputs.x, inputs.residual, {inputs.norm_weight, inputs.norm_bias},
                                      change, y);
      CHECK(max_difference(y, inputs.expected()) < 1e-10);
    }
}

TEST_CASE(
    "cuda: a linear layer with the norm of its sum in bfloat16 equals the ops, and repeats bit by bit") {
  const NoGradScope no_grad;
  for (const Device device : list_cuda_devices()) {
    const Bfloat16Scope scope(device);
    // The first five pairs use the fused CUDA kernels for up to 128 and up to 256 outputs. These kernels do
    // not support the last four pairs.
    for (const int64_t rows : {1, 31, 32, 33, 70})
      for (const auto& [in, out] : std::vector<std::pair<int64_t, int64_t>>{{8, 2},
                                                                            {64, 128},
                                                                            {72, 130},
                                                                            {256, 256},
                                                                            {200, 254},
                                                                            {520, 64},
                                                                            {37, 64},
                                                                            {64, 33},
                                                                            {64, 264}}) {
        CAPTURE(rows);
        CAPTURE(in);
        CAPTURE(out);
        NormInputs inputs(rows, in, out, DType::float32);
        for (Tensor* const operand : {&inputs.x, &inputs.weight})
          *operand = operand->to(DType::bfloat16).to(DType::float32);
        const Tensor expected = inputs.expected(), x = inputs.x.to(DType::bfloat16).to(device);
        const DecodingLinear layer(inputs.weight.to(device), inputs.bias.to(device), rows);
        const auto run = [&](const Tensor& rounded) {
          const Tensor change = Tensor::empty({rows, out}, DType::float32, device), y = change.clone();
          layer.forward_residual_norm_into(x, inputs.residual.to(device),
                                           {inputs.norm_weight.to(device), inputs.norm_bias.to(device)},
                                           change, y, rounded);
          return y;
        };
        const Tensor rounded = Tensor::empty({rows, out}, DType::bfloat16, device), y = run(rounded);
        CHECK(max_difference(y, expected) < 1e-5 * std::sqrt(in));
        CHECK(max_difference(rounded, y.to(DType::bfloat16)) == 0);
        CHECK(max_difference(run({}), y) == 0);
      }
  }
}

TEST_CASE("errors about arguments of DecodingLinear contain the mismatched shapes") {
  const DecodingLinear map(normal({3, 4}, 1), normal({3}, 2), 8);
  CHECK_THROWS_AS(map.forward_into(normal({8, 5}, 3), Activation::none, normal({8, 3}, 4)), ShapeError);
  CHECK_THROWS_AS(map.forward_into(normal({8, 4}, 3), Activation::none, normal({8, 4}, 4)), ShapeError);
  const Tensor norm = normal({3}, 5), out = normal({8, 3}, 6);
  CHECK_THROWS_AS(map.forward_residual_norm_into(normal({8, 5}, 3), out, {norm, norm}, out, out), ShapeError);
  CHECK_THROWS_AS(
      map.forward_residual_norm_into(normal({8, 4}, 3), normal({8, 4}, 4), {norm, norm}, out, out),
      ShapeError);
}
