// Tests of the ops that joined projections use. unbind() splits the result of a projection. concat() returns
// a view, and not a copy, if the weights are adjacent in memory. A layer norm can also return a rounded copy
// of its result for the next matrix product.
#include <doctest/doctest.h>

#include "ops/elementwise.h"
#include "ops/linear_attention.h"
#include "ops/norm.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns attention whose q, k and v are the three parts of x (batch, length, 3, heads, dim). If `separate`
// is true, the parts are slices instead of results of unbind().
Tensor attention_of_parts(const Tensor& x, bool causal_linear, bool separate) {
  std::vector<Tensor> parts;
  if (separate) {
    Shape shape{x.size(0), x.size(1), x.size(3), x.size(4)};
    for (int64_t i = 0; i < 3; ++i) parts.push_back(reshape(slice(x, 2, i, i + 1), shape));
  } else {
    parts = unbind(x, 2);
  }
  return causal_linear ? linear_attention(parts[0], parts[1], parts[2], {.causal = true})
                       : softmax_attention(parts[0], parts[1], parts[2]);
}

// Returns x. backward() stores the gradient of the result in `received`.
Tensor watch(const Tensor& x, Tensor& received) {
  return record("watch", detach(x), {&x}, [&received](const Tensor& g) {
    received = g;
    return Gradients{g};
  });
}

}  // namespace

TEST_CASE("unbind returns views, whose gradients reach the tensor with and without a copy") {
  const Tensor x = set_requires_grad(normal({2, 3, 4}));
  const std::vector<Tensor> parts = unbind(x, 1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[1].shape() == Shape{2, 4});
  CHECK(parts[1].to_vector() == slice(detach(x), 1, 1, 2).to_vector());
  CHECK(parts[2].shares_storage(x));
  // backward() starts at parts[1], so the gradient of `x` is zero at the positions of the other parts.
  backward(parts[1], normal({2, 4}, 3), {.retain_tape = true});
  const Tensor expected = Tensor::zeros({2, 3, 4}, DType::float64);
  slice(expected, 1, 1, 2).copy_from(normal({2, 4}, 3).view({2, 1, 4}));
  CHECK(gradient(x).to_vector() == expected.to_vector());
  // The second backward() must not add the gradients of the first backward() again.
  set_gradient(x, {});
  backward(parts[0], normal({2, 4}, 4));
  CHECK(max_difference(slice(gradient(x), 1, 1, 3), Tensor::zeros({2, 2, 4}, DType::float64)) == 0);
  CHECK_THROWS_WITH(unbind(x, 3), doctest::Contains("unbind"));
}

TEST_CASE("attention of the parts of one tensor gives the gradient of the tensor without a copy") {
  for (const bool causal_linear : {true, false}) {
    const auto gradients = [&](bool separate) {
      const Tensor x = set_requires_grad(normal({2, 5, 3, 2, 4}));
      backward(attention_of_parts(x, causal_linear, separate), normal({2, 5, 2, 4}, 3));
      return gradient(x).to_vector();
    };
    CHECK(gradients(false) == gradients(true));
    const Tensor x = set_requires_grad(normal({2, 5, 3, 2, 4}));
    std::vector<Tensor> received(4);
    std::vector<Tensor> parts = unbind(watch(x, received[3]), 2);
    for (size_t i = 0; i < 3; ++i) parts[i] = watch(parts[i], received[i]);
    const Tensor y = causal_linear ? linear_attention(parts[0], parts[1], parts[2], {.causal = true})
                                   : softmax_attention(parts[0], parts[1], parts[2]);
    backward(y, normal({2, 5, 2, 4}, 3));
    CHECK(are_slices_of_one_tensor({received[0], received[1], received[2]}, 2));
    CHECK(received[3].shares_storage(received[0]));
  }
}

TEST_CASE("concat of adjacent parts is a view, and of other parts a copy") {
  const Tensor all = normal({6, 4});
  const auto rows = [&](int64_t first, int64_t last) { return slice(all, 0, first, last); };
  const Tensor joined = concat({rows(0, 2), rows(2, 3), rows(3, 6)}, 0);
  CHECK(joined.shares_storage(all));
  CHECK(joined.to_vector() == all.to_vector());
  CHECK_FALSE(concat({rows(0, 2), rows(3, 6)}, 0).shares_storage(all));
  CHECK_FALSE(concat({rows(2, 3), rows(0, 2)}, 0).shares_storage(all));
  CHECK_FALSE(concat({rows(0, 3), rows(3, 6)}, 1).shares_storage(all));
  CHECK_FALSE(concat({rows(0, 1), rows(1, 2).to(DType::float64)}, 0).shares_storage(all));
  // The gradients of adjacent leaves equal the gradients of leaves in separate memory.
  const auto gradient_of_second = [&](bool adjacent) {
    const Tensor a = set_requires_grad(adjacent ? rows(0, 2) : rows(0, 2).clone());
    const Tensor b = set_requires_grad(adjacent ? rows(2, 6) : rows(2, 6).clone());
    const Tensor y = concat({a, b}, 0);
    CHECK(y.shares_storage(all) == adjacent);
    backward(mul(y, y), normal({6, 4}, 5));
    return gradient(b).to_vector();
  };
  CHECK(gradient_of_second(true) == gradient_of_second(false));
}

TEST_CASE("layer norms round their operand, and backward() adds the gradients of both results") {
  for (const Device device : list_devices()) {
    const Bfloat16Scope precision(device);
    for (const int64_t dim : {24, 33, 1029})
      for (const bool has_branch : {false, true}) {
        CAPTURE(dim);
        const auto leaf = [&](const Shape& shape, int salt) {
          return set_requires_grad(normal(shape, salt, DType::float32).to(device).alias());
        };
        const auto gradients = [&](bool with_operand, bool uses_result) {
          const std::vector<Tensor> in{leaf({5, dim}, 1), leaf({dim}, 2), leaf({dim}, 3), leaf({5, dim}, 4)};
          LayerNormResult norm;
          if (with_operand) {
            norm = has_branch ? residual_layer_norm_with_operand(in[0], in[3], in[1], in[2])
                              : layer_norm_with_operand(in[0], in[1], in[2]);
            CHECK(norm.operand.dtype() == DType::bfloat16);
          } else {
            norm.result = has_branch ? residual_layer_norm(in[0], in[3], in[1], in[2])
                                     : layer_norm(in[0], in[1], in[2]);
            norm.operand = cast(norm.result, DType::bfloat16);
          }
          const Tensor weight = normal({5, dim}, 5, DType::float32).to(device);
          Tensor sum = mul(cast(norm.operand, DType::float32), weight);
          if (uses_result) sum = add(sum, mul(norm.result, weight));
          backward(sum, normal({5, dim}, 6, DType::float32).to(device));
          std::vector<Tensor> all{detach(norm.operand).to(kCpu)};
          for (const Tensor& input : in)
            if (gradient(input).defined()) all.push_back(gradient(input).to(kCpu));
          return all;
        };
        for (const bool uses_result : {false, true}) {
          const auto found = gradients(true, uses_result), expected = gradients(false, uses_result);
          REQUIRE(found.size() == expected.size());
          for (size_t i = 0; i < found.size(); ++i)
            CHECK(max_difference(found[i].to(DType::float64), expected[i].to(DType::float64)) < 1e-4);
        }
      }
  }
}
