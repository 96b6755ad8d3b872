#include "ops/linear_attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "core/threads/threads.h"
#include "ops/reference/linear_attention.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Computes linear attention by its recurrent form, one token at a time.
Tensor recurrent(const Tensor& q, const Tensor& k, const Tensor& v,
                 const LinearAttentionOptions& options = {}) {
  const LinearAttentionState state =
      make_linear_attention_state(q.size(0), q.size(2), q.size(3), v.size(3), q.dtype());
  const Tensor out = Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype());
  auto token = [](const Tensor& x, int64_t t) {
    return x.view({x.size(0), x.size(2), x.size(3)}, {x.strides()[0], x.strides()[2], x.strides()[3]},
                  t * x.strides()[1]);
  };
  for (int64_t t = 0; t < q.size(1); ++t)
    linear_attention_step(token(q, t), token(k, t), token(v, t), state, token(out, t), options);
  return out;
}

// Sizes of the tests: lengths near multiples of 96, which is the length of a chunk on the CPU, and dims near
// the sizes of vectors and of packed panels.
const std::vector<AttentionSizes> kCausalSizes = {
    {2, 0, 0, 3, 4, 4},     {1, 1, 1, 1, 1, 1},       {2, 5, 5, 3, 3, 1},      {1, 95, 95, 2, 32, 32},
    {1, 96, 96, 2, 31, 33}, {3, 97, 97, 1, 33, 31},   {1, 193, 193, 9, 8, 16}, {1, 289, 289, 1, 65, 3},
    {2, 64, 64, 2, 64, 65}, {1, 30, 30, 1, 128, 128}, {0, 4, 4, 2, 3, 3}};
const std::vector<AttentionSizes> kFullSizes = {
    {2, 0, 7, 3, 4, 4},      {2, 7, 0, 3, 4, 5},     {1, 1, 97, 1, 1, 1},     {1, 97, 1, 2, 3, 33},
    {2, 95, 192, 2, 32, 32}, {1, 200, 96, 3, 31, 8}, {1, 50, 193, 9, 33, 16}, {1, 20, 145, 1, 65, 3}};

}  // namespace

TEST_CASE("linear attention: the chunked and the recurrent form equal the reference") {
  for (const AttentionSizes& size : kCausalSizes) {
    CAPTURE(describe(size));
    const auto [q, k, v] = attention_inputs(size);
    const Tensor exact = linear_attention_reference(q, k, v, {.causal = true});
    CHECK(max_difference(linear_attention(q, k, v, {.causal = true}), exact) < 1e-12);
    CHECK(max_difference(recurrent(q, k, v), exact) < 1e-12);
    const Tensor q32 = q.to(DType::float32), k32 = k.to(DType::float32), v32 = v.to(DType::float32);
    CHECK(max_difference(linear_attention(q32, k32, v32, {.causal = true}), exact) < 1e-5);
    CHECK(max_difference(recurrent(q32, k32, v32), exact) < 1e-5);
  }
  for (const AttentionSizes& size : kFullSizes) {
    CAPTURE(describe(size));
    const auto [q, k, v] = attention_inputs(size);
    const Tensor exact = linear_attention_reference(q, k, v);
    CHECK(max_difference(linear_attention(q, k, v), exact) < 1e-12);
    CHECK(max_difference(linear_attention(q.to(DType::float32), k.to(DType::float32), v.to(DType::float32)),
                         exact) < 1e-5);
  }
}

TEST_CASE("linear attention: every feature map equals the reference") {
  const auto [q, k, v] = attention_inputs({2, 60, 60, 2, 7, 5});
  for (const FeatureMap map :
       {FeatureMap::elu_plus_one, FeatureMap::relu, FeatureMap::squared_relu, FeatureMap::exponential}) {
    CAPTURE(static_cast<int>(map));
    const LinearAttentionOptions options{.causal = true, .feature_map = map};
    const Tensor exact = linear_attention_reference(q, k, v, options);
    CHECK(max_difference(linear_attention(q, k, v, options), exact) < 1e-12);
    CHECK(max_difference(recurrent(q, k, v, options), exact) < 1e-12);
  }
}

TEST_CASE("linear attention: the sum without the denominator equals the reference") {
  const auto [q, k, v] = attention_inputs({3, 130, 130, 2, 7, 5});
  const Tensor lengths = Tensor::from_vector<int64_t>({128, 0, 60}, {3});
  for (const FeatureMap map : {FeatureMap::elu_plus_one, FeatureMap::identity})
    for (const bool causal : {false, true}) {
      LinearAttentionOptions options{.causal = causal, .feature_map = map, .normalized = false};
      CHECK(max_difference(linear_attention(q, k, v, options), linear_attention_reference(q, k, v, options)) <
            1e-11);
      options.key_lengths = lengths;
      CHECK(max_difference(linear_attention(q, k, v, options), linear_attention_reference(q, k, v, options)) <
            1e-11);
      CHECK(gradient_error(
                linear_attention, {1, 98, 98, 2, 3, 2},
                LinearAttentionOptions{.causal = causal, .feature_map = map, .normalized = false}) < 1e-6);
    }
}

TEST_CASE("linear attention: gradients pass the gradient check") {
  const auto error = [](const AttentionSizes& size, const LinearAttentionOptions& options) {
    return gradient_error(linear_attention, size, options);
  };
  for (const AttentionSizes& size :
       {AttentionSizes{2, 3, 3, 2, 3, 2}, {1, 97, 97, 1, 2, 3}, {1, 4, 4, 1, 9, 17}, {2, 1, 1, 1, 1, 1}}) {
    CAPTURE(describe(size));
    CHECK(error(size, {.causal = true}) < 1e-6);
    CHECK(error(size, {}) < 1e-6);
  }
  CHECK(error({2, 5, 98, 1, 3, 2}, {}) < 1e-6);
  CHECK(error({2, 98, 5, 1, 3, 2}, {}) < 1e-6);
  const Tensor lengths = Tensor::from_vector<int64_t>({3, 0, 5}, {3});
  CHECK(error({3, 5, 5, 2, 3, 4}, {.causal = true, .key_lengths = lengths}) < 1e-6);
  CHECK(error({3, 4, 5, 2, 3, 4}, {.key_lengths = lengths}) < 1e-6);
  for (const FeatureMap map : {FeatureMap::squared_relu, FeatureMap::exponential})
    CHECK(error({1, 6, 6, 1, 4, 3}, {.causal = true, .feature_map = map, .eps = 0.1}) < 1e-6);
}

TEST_CASE(
    "linear attention: gradients over many chunks equal the reference, for all inputs or some of them") {
  for (const bool causal : {true, false}) {
    const AttentionInputs inputs = attention_inputs({2, 300, 300, 9, 33, 20});
    const Tensor cotangent = normal({2, 300, 9, 20}, 9);
    const LinearAttentionOptions options{.causal = causal};
    const std::vector<Tensor> exact = allocate_attention_gradients(linear_attention_reference, inputs,
                                                                   options, cotangent, DType::float64, 7);
    const std::vector<Tensor> chunked =
        allocate_attention_gradients(linear_attention, inputs, options, cotangent, DType::float64, 7);
    for (size_t i = 0; i < 3; ++i) CHECK(max_difference(chunked[i], exact[i]) < 1e-12);
    check_wanted_gradients(linear_attention, inputs, options, cotangent, exact, 1e-5);
  }
}

TEST_CASE("linear attention: strided inputs are read without a copy") {
  const Tensor packed = normal({2, 50, 3, 3, 8});  // (batch, length, q/k/v, heads, dim)
  auto part = [&](int64_t i) {
    const Shape& s = packed.strides();
    return packed.view({2, 50, 3, 8}, {s[0], s[1], s[3], s[4]}, i * s[2]);
  };
  const Tensor q = part(0), k = part(1), v = part(2);
  CHECK(max_difference(linear_attention(q, k, v, {.causal = true}),
                       linear_attention_reference(q, k, v, {.causal = true})) < 1e-12);
  // Tests inputs whose last dimension is not contiguous, and inputs with heads before length in memory.
  const Tensor permuted = transpose(normal({2, 50, 8, 3}), 2, 3),
               swapped = transpose(normal({2, 3, 50, 8}), 1, 2);
  CHECK(max_difference(linear_attention(permuted, swapped, swapped),
                       linear_attention_reference(permuted, swapped, swapped)) < 1e-12);
  const GradcheckResult result = gradcheck(
      [](const std::vector<Tensor>& in) {
        return linear_attention(transpose(in[0], 2, 3), transpose(in[1], 1, 2), in[2], {.causal = true});
      },
      {normal({1, 5, 4, 2}, 1), normal({1, 2, 5, 4}, 2), normal({1, 5, 2, 3}, 3)}, {.step = 1e-4});
  CHECK(result.max_relative_error < 1e-6);
}

TEST_CASE("linear attention: keys beyond the length have no effect, even if they are huge") {
  const AttentionSizes size{4, 120, 120, 2, 5, 3};
  auto [q, k, v] = attention_inputs(size);
  const Tensor lengths = Tensor::from_vector<int64_t>({0, 1, 97, 120}, {4});
  for (const bool causal : {false, true}) {
    const LinearAttentionOptions options{.causal = causal, .key_lengths = lengths};
    const Tensor clean = linear_attention(q, k, v, options);
    CHECK(max_difference(clean, linear_attention_reference(q, k, v, options)) < 1e-12);
    const Tensor dirty_k = k.clone();
    for (int64_t t = 1; t < 120; ++t) dirty_k.data<double>()[(120 + t) * 10] = 1e300;
    set_requires_grad(dirty_k);
    const Tensor dirty = linear_attention(q, dirty_k, v, options);
    CHECK(max_difference(clean, dirty) == 0);
    for (int64_t i = 0; i < 120 * 2 * 3; ++i)
      CHECK_FALSE(dirty.data<double>()[i] != 0);  // all keys of this example are masked
    backward(dirty, normal(dirty.shape(), 5));
    const std::vector<double> gk = gradient(dirty_k).to_vector();
    for (size_t i = 0; i < 120 * 10; ++i) CHECK(gk[i] == 0);
    for (size_t i = 121 * 10; i < 240 * 10; ++i) CHECK(gk[i] == 0);
    for (const double value : gk) CHECK(std::isfinite(value));
  }
}

TEST_CASE("linear attention: features are accurate far from zero") {
  // In float32, elu(x) + 1 with x = -20 would be rounded to 0. The exact value of elu(-20) + 1 is exp(-20).
  // The result of attention depends on the ratio of the features of the two keys.
  const Tensor q = Tensor::full({1, 2, 1, 1}, 30);
  const Tensor k = Tensor::from_vector<float>({-20, -21}, {1, 2, 1, 1}),
               v = Tensor::from_vector<float>({1, 0}, {1, 2, 1, 1});
  const Tensor out = linear_attention(q, k, v, {.eps = 1e-30});
  CHECK(std::abs(out.data<float>()[0] - 1 / (1 + std::exp(-1.0))) < 1e-6);
  for (const double x : {-1e4, 1e4, -1e30, 1e15}) {
    CAPTURE(x);
    const Tensor big = set_requires_grad(Tensor::full({1, 3, 1, 9}, x));
    const Tensor result = linear_attention(big, big, Tensor::full({1, 3, 1, 2}, 2), {.causal = true});
    backward(result, Tensor::full(result.shape(), 1));
    for (const double value : result.to_vector()) CHECK(std::abs(value - (x > 0 ? 2 : 0)) < 1e-5);
    for (const double value : gradient(big).to_vector()) CHECK(std::isfinite(value));
  }
}

TEST_CASE("linear attention: NaN in a query changes only the result of this query") {
  auto [q, k, v] = attention_inputs({1, 3, 3, 1, 4, 2});
  q.data<double>()[5] = NAN;
  const std::vector<double> out = linear_attention(q, k, v, {.causal = true}).to_vector();
  for (size_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out[i]) == (i / 2 == 1));
}

TEST_CASE("linear attention: errors about arguments contain the expected value") {
  const auto [q, k, v] = attention_inputs({2, 3, 3, 2, 4, 5});
  const Tensor short_k = normal({2, 2, 2, 4}), short_v = normal({2, 2, 2, 5});
  CHECK_THROWS_WITH_AS(
      linear_attention(q, short_k, v),
      "linear_attention: expected q (batch, query_length, heads, dim), k (batch, key_length, heads, dim) and "
      "v (batch, key_length, heads, value_dim), not (2, 3, 2, 4), (2, 2, 2, 4) and (2, 3, 2, 5)",
      ShapeError);
  CHECK_THROWS_WITH_AS(
      linear_attention(q, short_k, short_v, {.causal = true}),
      "linear_attention: the causal form needs queries and keys of equal length, not (2, 3, 2, 4) and "
      "(2, 2, 2, 4)",
      ShapeError);
  CHECK_THROWS_WITH_AS(linear_attention(q, k.to(DType::float32), v), doctest::Contains("one dtype"),
                       ShapeError);
  CHECK_THROWS_WITH_AS(linear_attention(q, k, v, {.key_lengths = Tensor::from_vector<int64_t>({1, 4}, {2})}),
                       "linear_attention: key_lengths[1] is 4, expected 0 to 3", ShapeError);
  CHECK_THROWS_WITH_AS(linear_attention(q, k, v, {.key_lengths = Tensor::from_vector<int64_t>({1}, {1})}),
                       "linear_attention: key_lengths must be int64 (2,), not int64 (1,)", ShapeError);
  CHECK_THROWS_AS(linear_attention(q, k, v, {.eps = 0}), ShapeError);
  CHECK_THROWS_WITH_AS(linear_attention(q, k, v, {.feature_map = FeatureMap::identity}),
                       "linear_attention: the feature map identity needs normalized = false", ShapeError);
  const LinearAttentionState state = make_linear_attention_state(2, 2, 4, 5, DType::float64);
  const Tensor token = normal({2, 2, 4}), value = normal({2, 2, 5});
  const auto step_error = [&](const LinearAttentionOptions& options, const NumeratorFeatures& numerator) {
    try {
      linear_attention_step(token, token, value, state, Tensor::empty({2, 2, 5}, DType::float64), options,
                            numerator);
    } catch (const ShapeError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(step_error({}, {}).empty());
  CHECK(step_error({.normalized = false}, {}).find("results have denominators") != std::string::npos);
  CHECK(step_error({.feature_map = FeatureMap::identity}, {}).find("results have denominators") !=
        std::string::npos);
  CHECK(step_error({}, {.q = token, .k = {}}) ==
        "linear_attention_step: expected both features of the numerator or none, got one");
  CHECK(step_error({}, {.q = token, .k = value}) ==
        "linear_attention_step: expected features of the numerator like q, float64 (2, 2, 4) on cpu with a "
        "contiguous last dimension, got float64 (2, 2, 5) on cpu");
  CHECK(step_error({}, {.q = token.to(DType::float32), .k = token}).find("got float32 (2, 2, 4)") !=
        std::string::npos);
  CHECK_THROWS_WITH_AS(linear_attention_step(token, token, value, state, token),
                       doctest::Contains("(2, 2, 5) and (2, 2, 4)"), ShapeError);
  CHECK_THROWS_WITH_AS(linear_attention_step(value, value, value, state, value),
                       doctest::Contains("does not match"), ShapeError);
}

TEST_CASE("linear attention: the error for a state or features on another device contains the op") {
  const Tensor token = normal({2, 2, 4});
  // Returns a tensor with the memory of `x` that is marked as memory of a CUDA device.
  const auto elsewhere = [](const Tensor& x) {
    return Tensor::borrow(x.data<double>(), x.shape(), x.strides(), x.dtype(), {DeviceType::cuda, 0});
  };
  const auto error = [&](const LinearAttentionState& state, const NumeratorFeatures& numerator) {
    return message_of<ShapeError>(
        [&] { linear_attention_step(token, token, token, state, Tensor::empty_like(token), {}, numerator); });
  };
  const LinearAttentionState state = make_linear_attention_state(2, 2, 4, 4, DType::float64);
  const std::string expected = "linear_attention_step: the state is on cuda:0, and q is on cpu";
  CHECK(error({elsewhere(state.kv), state.key_sum}, {}) == expected);
  CHECK(error({state.kv, elsewhere(state.key_sum)}, {}) == expected);
  CHECK(error(state, {.q = token, .k = elsewhere(token)}).ends_with("got float64 (2, 2, 4) on cuda:0"));
}

TEST_CASE("linear attention: results do not depend on the distribution of heads among threads") {
  const int before = get_thread_count();
  const AttentionInputs inputs = attention_inputs({3, 200, 200, 5, 16, 17});
  auto run = [&](int count) {
    set_thread_count(count);
    std::vector<Tensor> leaves;
    for (const Tensor& x : inputs.list()) leaves.push_back(set_requires_grad(x.to(DType::float32)));
    const Tensor out = linear_attention(leaves[0], leaves[1], leaves[2], {.causal = true});
    backward(out, normal(out.shape(), 7, DType::float32));
    std::vector<double> all = out.to_vector();
    for (const Tensor& leaf : leaves)
      for (const double value : gradient(leaf).to_vector()) all.push_back(value);
    return all;
  };
  const std::vector<double> one = run(1);
  CHECK(run(2) == one);
  CHECK(run(2) == one);
  CHECK(run(7) == one);
  set_thread_count(before);
}

TEST_CASE("linear attention: memory is linear in the length, and a step allocates nothing") {
  auto peak = [](int64_t length) {
    const Tensor x = set_requires_grad(normal({1, length, 2, 8}, 1, DType::float32));
    get_device_allocator().reset_peak();
    const int64_t before = get_device_allocator().stats().active_bytes;
    backward(linear_attention(x, x, x, {.causal = true}), Tensor::full({1, length, 2, 8}, 1));
    return get_device_allocator().stats().peak_bytes - before;
  };
  const int64_t at_1k = peak(1 << 10), at_16k = peak(1 << 14);
  CHECK(at_16k < 16 * at_1k);
  const LinearAttentionState state = make_linear_attention_state(3, 4, 70, 33);
  const Tensor q = normal({3, 4, 70}, 1, DType::float32), v = normal({3, 4, 33}, 2, DType::float32);
  const Tensor out = Tensor::empty_like(v);
  const int64_t before = get_device_allocator().stats().allocation_count;
  for (int i = 0; i < 5; ++i) linear_attention_step(q, q, v, state, out);
  CHECK(get_device_allocator().stats().allocation_count == before);
}
