#include "ops/softmax_attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>

#include "autograd/gradcheck.h"
#include "core/allocator.h"
#include "core/threads/threads.h"
#include "ops/reference/softmax_attention.h"
#include "ops/view.h"
#include "tests/ops/attention_inputs.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Tensor by_reference(const std::vector<Tensor>& in, const SoftmaxAttentionOptions& options = {}) {
  return softmax_attention_reference(in[0], in[1], in[2], options);
}

// Sizes near the tiles and blocks of the CPU kernels. Tiles have up to 8 by 32 elements, and blocks have 96
// queries by 240 or 256 keys.
const std::vector<AttentionSizes> kForwardSizes = {
    {2, 0, 0, 3, 4, 4},       {2, 0, 5, 1, 4, 4},        {2, 5, 0, 1, 4, 3},       {1, 1, 1, 1, 1, 1},
    {2, 5, 5, 3, 3, 1},       {1, 1, 300, 2, 3, 2},      {1, 95, 95, 1, 32, 32},   {1, 97, 241, 1, 31, 33},
    {2, 100, 250, 2, 33, 31}, {1, 250, 100, 9, 8, 5},    {1, 193, 193, 2, 64, 65}, {1, 20, 481, 1, 65, 3},
    {0, 4, 4, 2, 3, 3},       {1, 300, 300, 1, 16, 128}, {1, 7, 240, 1, 2, 17},    {2, 8, 130, 9, 5, 3}};

}  // namespace

TEST_CASE("softmax attention: the blockwise form equals the reference") {
  for (const AttentionSizes& size : kForwardSizes)
    for (const bool causal : {false, true}) {
      CAPTURE(describe(size));
      CAPTURE(causal);
      const std::vector<Tensor> in = attention_inputs(size).list();
      const SoftmaxAttentionOptions options{.causal = causal, .scale = causal ? 0.3 : 0};
      const Tensor exact = by_reference(in, options);
      CHECK(max_difference(softmax_attention(in[0], in[1], in[2], options), exact) < 1e-12);
      CHECK(max_difference(softmax_attention(in[0].to(DType::float32), in[1].to(DType::float32),
                                             in[2].to(DType::float32), options),
                           exact) < 1e-5);
    }
}

TEST_CASE("softmax attention: gradients pass the gradient check") {
  const auto error = [](const AttentionSizes& size, const SoftmaxAttentionOptions& options) {
    return gradient_error(softmax_attention, size, options);
  };
  for (const AttentionSizes& size :
       {AttentionSizes{2, 3, 3, 2, 3, 2}, {1, 7, 20, 1, 2, 3}, {1, 20, 7, 2, 3, 9}, {2, 1, 1, 1, 1, 1}}) {
    CAPTURE(describe(size));
    CHECK(error(size, {.causal = true}) < 1e-6);
    CHECK(error(size, {}) < 1e-6);
    CHECK(error(size, {.causal = true, .dropout = 0.4, .dropout_stream = RandomStream(1, "weights")}) < 1e-6);
  }
  const Tensor lengths = Tensor::from_vector<int64_t>({3, 0, 5}, {3});
  CHECK(error({3, 5, 5, 2, 3, 4}, {.causal = true, .key_lengths = lengths}) < 1e-6);
  CHECK(error({3, 4, 5, 2, 3, 4}, {.key_lengths = lengths, .scale = 2}) < 1e-6);
}

TEST_CASE(
    "softmax attention: gradients over many blocks equal the reference, for all inputs or some of "
    "them") {
  for (const AttentionSizes& size :
       {AttentionSizes{2, 300, 300, 2, 33, 20}, {1, 100, 500, 1, 16, 16}, {1, 500, 100, 1, 8, 40}})
    for (const bool causal : {true, false})
      for (const double dropout : {0.0, 0.25}) {
        CAPTURE(describe(size));
        const SoftmaxAttentionOptions options{
            .causal = causal, .dropout = dropout, .dropout_stream = RandomStream(5, "weights", 3)};
        const Tensor cotangent = normal({size.batch, size.query_length, size.heads, size.value_dim}, 9);
        const AttentionInputs inputs = attention_inputs(size);
        const std::vector<Tensor> exact = allocate_attention_gradients(softmax_attention_reference, inputs,
                                                                       options, cotangent, DType::float64, 7);
        const std::vector<Tensor> fused =
            allocate_attention_gradients(softmax_attention, inputs, options, cotangent, DType::float64, 7);
        for (size_t i = 0; i < 3; ++i) CHECK(max_difference(fused[i], exact[i]) < 1e-12);
        check_wanted_gradients(softmax_attention, inputs, options, cotangent, exact, 2e-5);
      }
}

TEST_CASE("softmax attention: a bias is added to the scores, and has the gradient of the reference") {
  for (const AttentionSizes& size : {AttentionSizes{2, 300, 300, 2, 33, 20}, {1, 100, 500, 2, 16, 16}})
    for (const bool causal : {true, false}) {
      CAPTURE(describe(size));
      CAPTURE(causal);
      std::vector<Tensor> in = attention_inputs(size).list();
      in.push_back(normal({size.batch, size.heads, size.query_length, size.key_length}, 7));
      for (int64_t i = 0; i < in[3].numel(); i += 3) in[3].data<double>()[i] = -INFINITY;
      std::fill_n(in[3].data<double>(), 2 * size.key_length, -INFINITY);  // two queries attend to no key
      const Tensor cotangent = normal({size.batch, size.query_length, size.heads, size.value_dim}, 9);
      const auto run = [&](auto* attention, DType dtype) {
        std::vector<Tensor> inputs;
        for (const Tensor& x : in) inputs.push_back(x.to(dtype));
        return outcome(
            [&](const auto& x) {
              return attention(x[0], x[1], x[2], {.causal = causal, .bias = x[3], .scale = -0.3});
            },
            inputs, cotangent);
      };
      const auto exact = run(softmax_attention_reference, DType::float64),
                 fused = run(softmax_attention, DType::float64),
                 single = run(softmax_attention, DType::float32);
      for (size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        CHECK(max_difference(fused[i], exact[i]) < 1e-12);
        CHECK(max_difference(single[i].to(DType::float64), exact[i]) < 2e-5);
      }
    }
}

TEST_CASE("softmax attention: dropout uses the documented elements of its stream") {
  const std::vector<Tensor> in = attention_inputs({2, 100, 251, 2, 4, 3}).list();
  const SoftmaxAttentionOptions options{.dropout = 0.3, .dropout_stream = RandomStream(11, "weights", 2)};
  const Tensor exact = by_reference(in, options);
  CHECK(max_difference(softmax_attention(in[0], in[1], in[2], options), exact) < 1e-12);
  CHECK(max_difference(softmax_attention(in[0], in[1], in[2]), exact) > 0.01);
}

TEST_CASE("softmax attention: strided inputs are read without a copy") {
  const Tensor packed = normal({2, 50, 3, 3, 8});  // (batch, length, one of q, k and v, heads, dim)
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < 3; ++i) {
    const Shape& s = packed.strides();
    parts.push_back(packed.view({2, 50, 3, 8}, {s[0], s[1], s[3], s[4]}, i * s[2]));
  }
  CHECK(max_difference(softmax_attention(parts[0], parts[1], parts[2], {.causal = true}),
                       by_reference(parts, {.causal = true})) < 1e-12);
  const std::vector<Tensor> permuted = {transpose(normal({2, 50, 8, 3}), 2, 3),
                                        transpose(normal({2, 3, 50, 8}), 1, 2),
                                        transpose(normal({2, 3, 50, 8}, 2), 1, 2)};
  CHECK(max_difference(softmax_attention(permuted[0], permuted[1], permuted[2]), by_reference(permuted)) <
        1e-12);
  const GradcheckResult result = gradcheck(
      [](const std::vector<Tensor>& in) {
        return softmax_attention(transpose(in[0], 2, 3), transpose(in[1], 1, 2), in[2], {.causal = true});
      },
      {normal({1, 5, 4, 2}, 1), normal({1, 2, 5, 4}, 2), normal({1, 5, 2, 3}, 3)}, {.step = 1e-4});
  CHECK(result.max_relative_error < 1e-6);
}

TEST_CASE("softmax attention: keys beyond the length have no effect, even if they are huge") {
  const std::vector<Tensor> in = attention_inputs({4, 120, 300, 1, 5, 3}).list();
  const Tensor lengths = Tensor::from_vector<int64_t>({0, 1, 241, 300}, {4});
  for (const bool causal : {false, true}) {
    const SoftmaxAttentionOptions options{.causal = causal, .key_lengths = lengths};
    const Tensor clean = softmax_attention(in[0], in[1], in[2], options);
    CHECK(max_difference(clean, by_reference(in, options)) < 1e-12);
    const Tensor dirty_k = in[1].clone(), dirty_v = in[2].clone();
    for (int64_t t = 1; t < 300; ++t) dirty_k.data<double>()[(300 + t) * 5] = NAN;
    for (int64_t t = 241; t < 300; ++t) dirty_v.data<double>()[(600 + t) * 3] = INFINITY;
    set_requires_grad(dirty_k);
    const Tensor dirty = softmax_attention(in[0], dirty_k, dirty_v, options);
    CHECK(max_difference(clean, dirty) == 0);
    CHECK(max_difference(slice(dirty, 0, 0, 1), Tensor::zeros({1, 120, 1, 3}, DType::float64)) == 0);
    backward(dirty, normal(dirty.shape(), 5));
    const Tensor gk = gradient(dirty_k);
    CHECK(max_difference(slice(gk, 0, 0, 1), Tensor::zeros({1, 300, 1, 5}, DType::float64)) == 0);
    CHECK(max_difference(slice(slice(gk, 0, 1, 2), 1, 1, 300),
                         Tensor::zeros({1, 299, 1, 5}, DType::float64)) == 0);
    for (const double value : gk.to_vector())
      if (!std::isfinite(value)) FAIL("a gradient is ", value);
  }
}

TEST_CASE("softmax attention: large scores do not overflow, and NaN propagates") {
  for (const double size : {1e2, 1e4, 1e18}) {
    const Tensor q = Tensor::full({1, 3, 1, 2}, size),
                 k = Tensor::from_vector<float>({1, 1, 2, 2, -3, -3}, {1, 3, 1, 2});
    const Tensor v = Tensor::from_vector<float>({1, 2, 3}, {1, 3, 1, 1});
    const std::vector<double> out = softmax_attention(q, k, v).to_vector();
    for (const double value : out) CHECK(value == 2);
  }
  std::vector<Tensor> in = attention_inputs({1, 3, 3, 1, 4, 2}).list();
  in[0].data<double>()[5] = NAN;
  const std::vector<double> out = softmax_attention(in[0], in[1], in[2], {.causal = true}).to_vector();
  for (size_t i = 0; i < out.size(); ++i) CHECK(std::isnan(out[i]) == (i / 2 == 1));
}

TEST_CASE("softmax attention: steps over a cache equal the parallel form") {
  for (const AttentionSizes& size :
       {AttentionSizes{2, 150, 150, 3, 8, 5}, {1, 70, 70, 9, 33, 31}, {1, 1, 1, 1, 1, 1}}) {
    CAPTURE(describe(size));
    const std::vector<Tensor> in = attention_inputs(size).list();
    for (const DType stored : {DType::float64, DType::float32, DType::bfloat16}) {
      const DType dtype = get_compute_dtype(stored);
      KeyValueCache cache =
          make_key_value_cache({size.batch, size.key_length, size.heads, size.dim, size.value_dim}, stored);
      const Tensor out = Tensor::empty({size.batch, size.query_length, size.heads, size.value_dim}, dtype);
      auto token = [&](const Tensor& x, int64_t t) {
        return x.view({x.size(0), x.size(2), x.size(3)}, {x.strides()[0], x.strides()[2], 1},
                      t * x.strides()[1]);
      };
      const Tensor q = in[0].to(dtype), k = in[1].to(dtype), v = in[2].to(dtype);
      const int64_t before = get_device_allocator().stats().allocation_count;
      for (int64_t t = 0; t < size.query_length; ++t)
        softmax_attention_step(token(q, t), token(k, t), token(v, t), cache, token(out, t));
      CHECK(get_device_allocator().stats().allocation_count == before);
      CHECK(cache.length == size.key_length);
      const std::vector<Tensor> read = {in[0], k.to(stored).to(DType::float64),
                                        v.to(stored).to(DType::float64)};
      CHECK(max_difference(out, by_reference(read, {.causal = true})) <
            (dtype == DType::float64 ? 1e-12 : 1e-5));
      CHECK_THROWS_WITH_AS(
          softmax_attention_step(token(q, 0), token(k, 0), token(v, 0), cache, token(out, 0)),
          doctest::Contains("the cache is full"), ShapeError);
    }
  }
}

TEST_CASE("softmax attention: errors about arguments contain the expected value") {
  const std::vector<Tensor> in = attention_inputs({2, 3, 3, 2, 4, 5}).list();
  CHECK_THROWS_WITH_AS(softmax_attention(in[0], normal({2, 2, 2, 4}), in[2]),
                       doctest::Contains("not (2, 3, 2, 4), (2, 2, 2, 4) and (2, 3, 2, 5)"), ShapeError);
  CHECK_THROWS_WITH_AS(
      softmax_attention(in[0], in[1], in[2], {.key_lengths = Tensor::from_vector<int64_t>({-1, 4}, {2})}),
      "softmax_attention: key_lengths[0] is -1, expected 0 to 3", ShapeError);
  CHECK_THROWS_WITH_AS(softmax_attention(in[0], in[1], in[2], {.dropout = 1}),
                       "softmax_attention: dropout must be in [0, 1), not 1", ShapeError);
  CHECK_THROWS_WITH_AS(
      softmax_attention(in[0], in[1], in[2], {.bias = normal({2, 3, 3})}),
      "softmax_attention: the bias must be float64 (2, 2, 3, 3) on cpu, not float64 (2, 3, 3) "
      "on cpu",
      ShapeError);
  KeyValueCache cache{normal({2, 7, 2, 4}), normal({2, 7, 2, 4})};
  CHECK_THROWS_WITH_AS(softmax_attention_step(normal({2, 2, 4}), normal({2, 2, 4}), normal({2, 2, 5}), cache,
                                              normal({2, 2, 5})),
                       doctest::Contains("cache float64 (2, 7, 2, 4) and (2, 7, 2, 4) does not match"),
                       ShapeError);
  const Tensor token = normal({2, 2, 4}), rounded = token.to(DType::bfloat16);
  KeyValueCache small{cache.keys.to(DType::bfloat16), cache.values.to(DType::bfloat16)};
  CHECK_THROWS_WITH_AS(
      softmax_attention_step(token, token, token, small, token.clone()),
      doctest::Contains("cache bfloat16 (2, 7, 2, 4) and (2, 7, 2, 4) does not match k float64"), ShapeError);
  CHECK_THROWS_WITH_AS(softmax_attention_step(rounded, rounded, rounded, small, rounded.clone()),
                       "softmax_attention_step: q, k and v must be float32 or float64, not bfloat16",
                       ShapeError);
}

TEST_CASE(
    "softmax attention: results are bit-identical for any number of threads, and memory is linear in the "
    "length") {
  const int before = get_thread_count();
  const std::vector<Tensor> in = attention_inputs({3, 200, 200, 5, 16, 17}).list();
  auto run = [&](int count) {
    set_thread_count(count);
    std::vector<Tensor> leaves;
    for (const Tensor& x : in) leaves.push_back(set_requires_grad(x.to(DType::float32)));
    const Tensor out = softmax_attention(leaves[0], leaves[1], leaves[2], {.causal = true});
    backward(out, normal(out.shape(), 7, DType::float32));
    std::vector<double> all = out.to_vector();
    for (const Tensor& leaf : leaves)
      for (const double value : gradient(leaf).to_vector()) all.push_back(value);
    return all;
  };
  const std::vector<double> one = run(1);
  CHECK(run(2) == one);
  CHECK(run(7) == one);
  set_thread_count(before);

  auto peak = [](int64_t length) {
    const Tensor x = set_requires_grad(normal({1, length, 2, 8}, 1, DType::float32));
    get_device_allocator().reset_peak();
    const int64_t active = get_device_allocator().stats().active_bytes;
    backward(softmax_attention(x, x, x, {.causal = true}), Tensor::full({1, length, 2, 8}, 1));
    return get_device_allocator().stats().peak_bytes - active;
  };
  const int64_t at_512 = peak(512), at_4k = peak(4096);
  CHECK(at_4k < 8 * at_512);
}
