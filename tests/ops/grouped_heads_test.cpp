// Softmax attention with fewer heads of keys and values than heads of queries.
#include <doctest/doctest.h>

#include "core/threads/threads.h"
#include "ops/elementwise.h"
#include "ops/gated_activation.h"
#include "ops/softmax_attention.h"
#include "ops/split.h"
#include "ops/view.h"
#include "tests/support/devices.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct GroupedInputs {
  Tensor q, k, v;
};

GroupedInputs make_inputs(int64_t length, int64_t heads, int64_t key_heads, DType dtype = DType::float64) {
  return {normal({2, length, heads, 5}, 1, dtype), normal({2, length, key_heads, 5}, 2, dtype),
          normal({2, length, key_heads, 3}, 3, dtype)};
}

// Returns the result of f and the gradients of the inputs.
template <class F>
std::vector<Tensor> run(const GroupedInputs& in, const F& f) {
  std::vector<Tensor> leaves;
  for (const Tensor* x : {&in.q, &in.k, &in.v}) leaves.push_back(set_requires_grad(x->clone()));
  const Tensor out = f(leaves[0], leaves[1], leaves[2]);
  backward(out, normal(out.shape(), 4, out.dtype()));
  std::vector<Tensor> results{detach(out)};
  for (const Tensor& leaf : leaves) results.push_back(gradient(leaf));
  return results;
}

}  // namespace

TEST_CASE("softmax attention with grouped heads equals attention to repeated keys, in value and gradient") {
  const int before = get_thread_count();
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::float64, 1e-12), {DType::float32, 1e-5}, {DType::bfloat16, 0.1}})
    for (const int64_t length : {1, 9, 131})
      for (const int64_t key_heads : {1, 2, 3, 6})
        for (const int threads : {1, 2}) {
          CAPTURE(length);
          CAPTURE(key_heads);
          set_thread_count(threads);
          const SoftmaxAttentionOptions options{
              .causal = true, .dropout = 0.2, .dropout_stream = RandomStream(5, "weights")};
          const GroupedInputs in = make_inputs(length, 6, key_heads, dtype);
          const auto grouped = run(in, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
            return softmax_attention(q, k, v, options);
          });
          const auto repeated = run(in, [&](const Tensor& q, const Tensor& k, const Tensor& v) {
            const int64_t count = 6 / key_heads;
            return softmax_attention(q, repeat_interleave(k, 2, count), repeat_interleave(v, 2, count),
                                     options);
          });
          for (size_t i = 0; i < grouped.size(); ++i)
            CHECK(max_difference(grouped[i].to(DType::float64), repeated[i].to(DType::float64)) < tolerance);
        }
  set_thread_count(before);
}

TEST_CASE("head h of the queries reads head h / (heads / key heads) of the keys") {
  const GroupedInputs in = make_inputs(4, 6, 2);
  const Tensor out = softmax_attention(in.q, in.k, in.v);
  const auto head = [](const Tensor& x, int64_t h) { return slice(x, 2, h, h + 1); };
  for (int64_t h = 0; h < 6; ++h)
    CHECK(max_difference(head(out, h),
                         softmax_attention(head(in.q, h), head(in.k, h / 3), head(in.v, h / 3))) < 1e-14);
}

TEST_CASE("steps with grouped heads equal causal attention, with a cache of the heads of keys") {
  std::vector<Device> devices = list_cuda_devices();
  devices.push_back(kCpu);
  for (const Device device : devices)
    for (const int64_t key_heads : {1, 2, 3, 6}) {
      CAPTURE(key_heads);
      constexpr int64_t kSteps = 90;
      const GroupedInputs in = make_inputs(kSteps, 6, key_heads);
      const Tensor expected = softmax_attention(in.q, in.k, in.v, {.causal = true});
      KeyValueCache cache{Tensor::zeros({2, kSteps, key_heads, 5}, DType::float64, device),
                          Tensor::zeros({2, kSteps, key_heads, 3}, DType::float64, device)};
      const Tensor out = Tensor::empty({2, 6, 3}, DType::float64, device);
      for (int64_t t = 0; t < kSteps; ++t) {
        const auto token = [&](const Tensor& x) {
          return slice(x, 1, t, t + 1).clone().view({2, x.size(2), x.size(3)}).to(device);
        };
        softmax_attention_step(token(in.q), token(in.k), token(in.v), cache, out);
        CHECK(max_difference(out, slice(expected, 1, t, t + 1).clone().view({2, 6, 3})) < 1e-12);
      }
    }
}

TEST_CASE("attention refuses numbers of heads that do not divide, and names the shapes") {
  const GroupedInputs in = make_inputs(4, 6, 4);
  CHECK_THROWS_WITH_AS(
      softmax_attention(in.q, in.k, in.v),
      doctest::Contains("where the heads of q are a multiple of those of k and v, not (2, 4, 6, 5)"),
      ShapeError);
}

TEST_CASE("gated_activation() equals the composition of its parts") {
  const Tensor x = normal({3, 10});
  const Tensor a = slice(x, 1, 0, 5), b = slice(x, 1, 5, 10);
  const Tensor tanh_gelu =
      mul(mul(a, 0.5), add(tanh(mul(add(a, mul(mul(mul(a, a), a), 0.044715)), 0.79788456080286535588)), 1));
  for (const auto& [activation, expected] : {std::pair(Activation::none, a),
                                             {Activation::relu, relu(a)},
                                             {Activation::gelu, gelu(a)},
                                             {Activation::gelu_tanh, tanh_gelu},
                                             {Activation::silu, silu(a)}}) {
    CHECK(max_difference(gated_activation(x, activation), mul(expected, b)) < 1e-14);
    const Tensor out = Tensor::empty({3, 5}, DType::float64);
    gated_activation_into(x, activation, out);
    CHECK(max_difference(out, mul(expected, b)) < 1e-14);
    const Tensor rounded = gated_activation(x.to(DType::bfloat16), activation);
    CHECK(rounded.dtype() == DType::bfloat16);
    CHECK(max_difference(rounded.to(DType::float64), mul(expected, b)) < 0.1);
  }
  CHECK_THROWS_WITH_AS(gated_activation(normal({2, 3}), Activation::silu),
                       doctest::Contains("the last dimension of (2, 3) must be even"), ShapeError);
}
