// Tests of basic ops: results that were computed by hand, invalid arguments, and cases that the op table does
// not contain.
#include <doctest/doctest.h>

#include <cmath>

#include "core/cpu/dropout_bits.h"
#include "core/threads/threads.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/linear.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("wrong shapes and dtypes throw with the shapes in the text") {
  const Tensor a = normal({2, 3}), b = normal({4, 5});
  CHECK_THROWS_WITH_AS(add(a, b), "add: shapes (2, 3) and (4, 5) do not broadcast together", ShapeError);
  CHECK_THROWS_WITH(add(a, a.to(DType::float32)),
                    "add: the operands are float64 and float32, expected equal dtypes");
  CHECK_THROWS_WITH(exp(Tensor::zeros({2}, DType::int32)), "exp: needs float32 or float64, not int32");
  CHECK_THROWS_WITH(matmul(a, b), "matmul: inner sizes differ: (2, 3) times (4, 5)");
  CHECK_THROWS_WITH(linear(a, b, {}), "linear: input (2, 3) does not match weight (4, 5) (out, in)");
  CHECK_THROWS_WITH(linear(a, normal({4, 3}), normal({3})), "linear: bias (3,) does not match weight (4, 3)");
  CHECK_THROWS_WITH(layer_norm(a, normal({2}), normal({2})),
                    doctest::Contains("input (2, 3) does not match weight (2,)"));
  CHECK_THROWS_WITH(residual_layer_norm(a, b, normal({3}), normal({3})),
                    doctest::Contains("(2, 3) and branch float64 (4, 5) differ"));
  CHECK_THROWS_WITH(reshape(a, {4, -1}), "reshape: shape (2, 3) cannot become (4, -1)");
  CHECK_THROWS_WITH(permute(a, {0, 0}), "permute: order (0, 0) names a dimension twice");
  CHECK_THROWS_WITH(slice(a, 1, 2, 5), "slice: [2, 5) is out of range for dimension 1 of shape (2, 3)");
  CHECK_THROWS_WITH(pad(a, 0, -1, 0), "pad: cannot add -1 and 0 zeros to shape (2, 3)");
  CHECK_THROWS_WITH(split_into_blocks(a, 1, 0),
                    "split_into_blocks: blocks of 0 elements cannot hold shape (2, 3)");
  CHECK_THROWS_WITH(concat({a, b}, 0), "concat: shapes (2, 3) and (4, 5) do not join along dimension 0");
  CHECK_THROWS_WITH(embedding(a, Tensor::from_vector<int64_t>({0, 2}, {2})),
                    "embedding: index 2 at element 1 is not in [0, 2)");
  CHECK_THROWS_WITH(embedding(a, normal({2})),
                    "embedding: needs integer indices (uint8, int32 or int64), not float64");
  CHECK_THROWS_WITH(cross_entropy(a, Tensor::from_vector<int64_t>({0, 3}, {2})),
                    "cross_entropy: index 3 at element 1 is not in [0, 3)");
  CHECK_THROWS_WITH(max(normal({2, 0}), 1), "max: dimension 1 of shape (2, 0) is empty");
  CHECK_THROWS_WITH(dropout(a, {1.0, {}}), "dropout: probability 1 is not in [0, 1)");
}

TEST_CASE("matmul broadcasts stacks of matrices") {
  const Tensor a = Tensor::from_vector<double>({1, 2, 3, 4}, {2, 2});
  const Tensor b = Tensor::from_vector<double>({1, 0, 0, 1, 0, 1, 1, 0}, {2, 2, 2});
  CHECK(matmul(a, b).to_vector() == std::vector<double>{1, 2, 3, 4, 2, 1, 4, 3});
  CHECK(matmul(a, a, {.transpose_b = true}).to_vector() == std::vector<double>{5, 11, 11, 25});
  CHECK(matmul(normal({2, 0}), normal({0, 3})).to_vector() == std::vector<double>(6, 0.0));
}

TEST_CASE("pad adds zeros, and split_into_blocks pads the last block") {
  const Tensor x = Tensor::from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3});
  CHECK(pad(x, 1, 1, 0).to_vector() == std::vector<double>{0, 1, 2, 3, 0, 4, 5, 6});
  CHECK(pad(x, 0, 0, 1).to_vector() == std::vector<double>{1, 2, 3, 4, 5, 6, 0, 0, 0});
  const Tensor blocks = split_into_blocks(x, 1, 2);
  CHECK(blocks.shape() == Shape{2, 2, 2});
  CHECK(blocks.to_vector() == std::vector<double>{1, 2, 3, 0, 4, 5, 6, 0});
  CHECK(split_into_blocks(x, 1, 3).shares_storage(x));
}

TEST_CASE("tensors without elements are reshaped, joined, divided and gathered, with gradients") {
  const Tensor none = Tensor::zeros({0}, DType::int64);
  for (const Shape& shape : {Shape{0, 3, 2}, Shape{2, 0, 2}, Shape{2, 3, 0}}) {
    CAPTURE(shape.to_string());
    const Tensor x = normal(shape);
    set_requires_grad(x);
    std::vector<Tensor> results = {contiguous(transpose(x, 0, 2)),
                                   cast(x, DType::float32),
                                   reshape(x, {0, 4}),
                                   concat({x, x}, 0),
                                   concat({x, slice(x, 1, 0, 0)}, 1),
                                   stack({x, x}, 1),
                                   slice(x, 2, 0, shape[2] / 2),
                                   split_into_blocks(x, 1, 2),
                                   pad(x, 1, 0, 0),
                                   sum(x),
                                   add(x, x)};
    for (int dim = 0; dim < 3; ++dim)
      for (const Tensor& part : unbind(x, dim)) results.push_back(part);
    results.push_back(embedding(normal({4, 3}), none));
    results.push_back(gather(x, 1, Tensor::zeros({shape[0], 0, shape[2]}, DType::int64)));
    Tensor total = Tensor::zeros({}, DType::float64);
    for (const Tensor& result : results) total = add(total, sum(cast(result, DType::float64)));
    CHECK(total.item() == 0);
    backward(total);
    CHECK(gradient(x).shape() == shape);
  }
}

TEST_CASE("softmax and logsumexp of large and infinite logits are not NaN") {
  const double inf = INFINITY;
  const Tensor x = Tensor::from_vector<double>({1000, 1000, -inf, -inf, -inf, -inf}, {2, 3});
  CHECK(softmax(x).to_vector() == std::vector<double>{0.5, 0.5, 0, 0, 0, 0});
  CHECK(logsumexp(x).to_vector() == std::vector<double>{1000 + std::log(2.0), -inf});
}

TEST_CASE("cross entropy without weighted rows is zero and has zero gradient") {
  const Tensor logits = set_requires_grad(normal({2, 3}));
  const Tensor loss =
      cross_entropy(logits, Tensor::from_vector<int64_t>({0, 1}, {2}), Tensor::zeros({2}, DType::uint8));
  CHECK(loss.item() == 0);
  backward(loss);
  CHECK(gradient(logits).to_vector() == std::vector<double>(6, 0.0));
}

TEST_CASE("argmax and max select the first of equal elements") {
  const Tensor x = Tensor::from_vector<double>({1, 5, 5, 7, 7, 2}, {2, 3});
  CHECK(argmax(x).to_vector() == std::vector<double>{1, 0});
  set_requires_grad(x);
  backward(sum(max(x, 1)));
  CHECK(gradient(x).to_vector() == std::vector<double>{0, 1, 0, 1, 0, 0});
}

TEST_CASE("cuda: rows that are too long for one block are summed correctly") {
  for (const Device device : list_cuda_devices())
    for (const Shape& shape : {Shape{2, 40003}, Shape{1, 16385}}) {
      const Tensor x = normal(shape);
      CHECK(max_difference(sum(x.to(device), 1), sum(x, 1)) < 1e-11);
    }
}

TEST_CASE("dropout keeps a share of 1 - p, scales kept elements, and draws the same mask from any start") {
  const DropoutMask mask{0.1, RandomStream(1, "share", 7)};
  const Tensor ones = Tensor::full({100003}, 1);
  const Tensor y = dropout(ones, mask);
  int64_t kept = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const bool keep = mask.stream.bits16(static_cast<uint64_t>(i)) >= mask.threshold();
    REQUIRE(y.data<float>()[i] == (keep ? static_cast<float>(mask.scale()) : 0.0f));
    kept += keep;
  }
  CHECK(std::abs(kept / 100003.0 - 0.9) < 0.004);
  std::vector<float> tail(1000);
  cpu::compute_dropout_multipliers(mask, 777, 1000, tail.data());  // 777 is inside a block of random bits
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(tail[static_cast<size_t>(i)] == y.data<float>()[777 + i]);
  const Tensor part = dropout(Tensor::full({1000}, 1), mask.at_offset(700).at_offset(77));
  for (int64_t i = 0; i < 1000; ++i) REQUIRE(part.data<float>()[i] == y.data<float>()[777 + i]);
  CHECK(dropout(ones, {}).id() == ones.id());
}

TEST_CASE("the fused linear op equals a composition of separate ops, for many rows and threads") {
  const Tensor x = normal({1500, 33}, 1), weight = normal({65, 33}, 2), bias = normal({65}, 3);
  for (const Activation activation : {Activation::none, Activation::relu, Activation::gelu}) {
    const DropoutMask mask{0.25, RandomStream(8, "fused")};
    auto plain = [&](const Tensor& in) {
      const Tensor z = add(matmul(in, weight, {.transpose_b = true}), bias);
      return dropout(activation == Activation::relu   ? relu(z)
                     : activation == Activation::gelu ? gelu(z)
                                                      : z,
                     mask);
    };
    std::vector<Tensor> results;
    for (int fused = 0; fused < 2; ++fused) {
      for (const Tensor& leaf : {x, weight, bias}) set_gradient(set_requires_grad(leaf), {});
      const Tensor y = fused ? linear(x, weight, bias, activation, mask) : plain(x);
      backward(y, normal(y.shape(), 9));
      results.insert(results.end(), {y, gradient(x), gradient(weight), gradient(bias)});
    }
    for (size_t i = 0; i < 4; ++i) CHECK(max_difference(results[i], results[i + 4]) < 1e-11);
  }
}

TEST_CASE("the fused residual layer norm equals a composition of separate ops") {
  const Tensor x = normal({700, 33}, 1), branch = normal({700, 33}, 2), weight = normal({33}, 3),
               bias = normal({33}, 4);
  const DropoutMask mask{0.25, RandomStream(8, "fused")};
  auto plain = [&] {
    const Tensor s = add(x, dropout(branch, mask));
    const Tensor centred = sub(s, mean(s, -1, true));
    const Tensor variance = mean(square(centred), -1, true);
    return add(mul(div(centred, sqrt(add(variance, kLayerNormEps))), weight), bias);
  };
  std::vector<Tensor> results;
  for (int fused = 0; fused < 2; ++fused) {
    for (const Tensor& leaf : {x, branch, weight, bias}) set_gradient(set_requires_grad(leaf), {});
    const Tensor y = fused ? residual_layer_norm(x, branch, weight, bias, mask) : plain();
    backward(y, normal(y.shape(), 9));
    results.insert(results.end(), {y, gradient(x), gradient(branch), gradient(weight), gradient(bias)});
  }
  for (size_t i = 0; i < 5; ++i) CHECK(max_difference(results[i], results[i + 5]) < 1e-11);
}
