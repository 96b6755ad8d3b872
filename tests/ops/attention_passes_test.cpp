// Tests of the passes of attention (ops/attention_result.h) and of the layers beside it (ops/layer_passes.h),
// which equal the op and its gradient on the tape.
#include <doctest/doctest.h>

#include <algorithm>

#include "ops/gated_linear_attention.h"
#include "ops/layer_passes.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/rms_norm.h"
#include "ops/short_conv.h"
#include "ops/softmax_attention.h"
#include "tests/ops/attention_inputs.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr AttentionSizes kSizes{2, 37, 37, 3, 8, 5};

double largest_difference(const Tensor& a, const Tensor& b) {
  REQUIRE(a.shape() == b.shape());
  const std::vector<double> x = a.to_vector(), y = b.to_vector();
  double largest = 0;
  for (size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}

// Computes the result and the gradients of the inputs on the tape.
struct TapeResult {
  Tensor out;
  std::vector<Tensor> gradients;
};
template <class Op>
TapeResult run_on_tape(const std::vector<Tensor>& inputs, const Tensor& cotangent, const Op& op) {
  for (const Tensor& x : inputs) set_requires_grad(x);
  TapeResult result{op(), {}};
  backward(result.out, cotangent);
  result.out = detach(result.out);
  for (const Tensor& x : inputs) result.gradients.push_back(gradient(x));
  return result;
}

AttentionResult allocate(const Tensor& v, const Shape& statistics) {
  return {Tensor::empty({v.size(0), kSizes.query_length, v.size(2), v.size(3)}, v.dtype()),
          Tensor::empty(statistics, DType::float64)};
}

Gradients allocate_like(const std::vector<Tensor>& inputs) {
  Gradients gradients;
  for (const Tensor& x : inputs)
    gradients.push_back(Tensor::full(x.shape(), 99, x.dtype()));  // passes must not read them
  return gradients;
}

void check_equal(const TapeResult& expected, const Tensor& out, const Gradients& gradients) {
  CHECK(largest_difference(expected.out, out) == 0);
  for (size_t i = 0; i < gradients.size(); ++i)
    CHECK(largest_difference(expected.gradients[i], gradients[i]) < 1e-13);
}

const Shape kStatistics{kSizes.batch, kSizes.heads, kSizes.query_length};
const Shape kOutShape{kSizes.batch, kSizes.query_length, kSizes.heads, kSizes.value_dim};

}  // namespace

TEST_CASE("the passes of softmax and linear attention equal the ops") {
  const Tensor cotangent = normal(kOutShape, 9);
  const Tensor lengths = Tensor::from_vector<int64_t>({37, 5}, {2});
  for (const bool causal : {false, true}) {
    const auto [q, k, v] = attention_inputs(kSizes);
    const std::vector<Tensor> inputs{q, k, v};
    const AttentionResult result = allocate(v, kStatistics);
    const Gradients gradients = allocate_like(inputs);
    SUBCASE("softmax") {
      const SoftmaxAttentionOptions options{.causal = causal, .key_lengths = lengths};
      const TapeResult expected =
          run_on_tape(inputs, cotangent, [&] { return softmax_attention(q, k, v, options); });
      const NoGradScope no_grad;
      softmax_attention_forward_into(q, k, v, options, result);
      softmax_attention_backward_into(q, k, v, options, result, cotangent, gradients);
      check_equal(expected, result.out, gradients);
    }
    SUBCASE("linear") {
      const LinearAttentionOptions options{.causal = causal, .key_lengths = lengths};
      const TapeResult expected =
          run_on_tape(inputs, cotangent, [&] { return linear_attention(q, k, v, options); });
      const NoGradScope no_grad;
      linear_attention_forward_into(q, k, v, options, result);
      linear_attention_backward_into(q, k, v, options, result, cotangent, gradients);
      check_equal(expected, result.out, gradients);
    }
  }
}

TEST_CASE("the passes of LSH attention equal the op") {
  const Tensor cotangent = normal(kOutShape, 9);
  for (const char* preset : {"reformer", "fast_transformers"}) {
    const auto [q, k, v] = attention_inputs(kSizes);
    LshOptions options = make_lsh_preset(preset);
    options.chunk_length = 8;
    options.buckets = 4;
    const int64_t rounds = options.combine == LshOptions::Combine::mean ? options.rounds : 1;
    const Tensor buckets = compute_lsh_buckets(q, options, RandomStream(1, "hash"));
    const TapeResult expected =
        run_on_tape({q, v}, cotangent, [&] { return lsh_attention(q, v, buckets, options); });
    const AttentionResult result = allocate(v, {kSizes.batch, kSizes.heads, rounds, kSizes.query_length});
    const Gradients gradients = allocate_like({q, v});
    const NoGradScope no_grad;
    lsh_attention_forward_into(q, v, buckets, options, result);
    lsh_attention_backward_into(q, v, buckets, options, result, cotangent, gradients);
    check_equal(expected, result.out, gradients);
  }
}

TEST_CASE("the passes of gated linear attention equal the op") {
  const Tensor cotangent = normal(kOutShape, 9);
  const auto [q, k, v] = attention_inputs(kSizes);
  const Tensor decay = normal({2, 37, 3, 8}, 5), beta = normal({2, 37, 3}, 6), erase = normal(k.shape(), 7),
               state = normal({2, 3, 8, 5}, 8);
  for (const Tensor& x : {decay, erase}) x.copy_from(x.clone()), x.add_scaled(x.clone(), -0.9);
  for (int64_t i = 0; i < decay.numel(); ++i) decay.data<double>()[i] = -std::abs(decay.data<double>()[i]);
  const GatedLinearAttentionOptions options{
      .log_decay = decay, .erase = erase, .beta = beta, .initial_state = state};
  const std::vector<Tensor> inputs{q, k, v, decay, erase, beta, state};
  const TapeResult expected =
      run_on_tape(inputs, cotangent, [&] { return gated_linear_attention(q, k, v, options).out; });
  const GatedAttentionResult result{Tensor::empty(kOutShape, DType::float64),
                                    Tensor::empty(state.shape(), DType::float64),
                                    Tensor::empty(kOutShape, DType::float64)};
  const Gradients gradients = allocate_like(inputs);
  const NoGradScope no_grad;
  gated_linear_attention_forward_into(q, k, v, options, result);
  gated_linear_attention_backward_into(q, k, v, options, result.written, cotangent, {}, gradients);
  check_equal(expected, result.out, gradients);
}

TEST_CASE("the passes refuse results and gradients of other shapes and dtypes") {
  const auto [q, k, v] = attention_inputs(kSizes);
  const auto refuses = [&](const AttentionResult& result, const char* text) {
    CHECK_THROWS_WITH_AS(linear_attention_forward_into(q, k, v, {}, result), doctest::Contains(text),
                         ShapeError);
  };
  AttentionResult result = allocate(v, kStatistics);
  refuses({result.out, {}}, "statistics is undefined");
  refuses({result.out, Tensor::empty({2, 3, 36}, DType::float64)}, "(2, 3, 36)");
  refuses({Tensor::empty(result.out.shape()), result.statistics}, "float32");
  linear_attention_forward_into(q, k, v, {}, result);
  Gradients gradients = allocate_like({q, k, v});
  gradients[1] = Tensor::empty({2, 36, 3, 8}, DType::float64);
  CHECK_THROWS_WITH_AS(linear_attention_backward_into(q, k, v, {}, result, result.out, gradients),
                       doctest::Contains("(2, 36, 3, 8)"), ShapeError);
}

TEST_CASE("a borrowed tensor uses the array of the caller and does not free it") {
  std::vector<float> values{1, 2, 3, 4, 5, 6};
  {
    const Tensor columns = Tensor::borrow(values.data(), {3, 2}, {1, 3}, DType::float32);
    CHECK(columns.clone().to_vector() == std::vector<double>{1, 4, 2, 5, 3, 6});
    columns.fill(7);
  }
  CHECK(values == std::vector<float>(6, 7));
}

TEST_CASE("the passes of short convolutions and gated norms equal the ops") {
  const Tensor x = normal({2, 9, 5}, 1), cotangent = normal({2, 9, 5}, 9);
  const Tensor out = Tensor::full(x.shape(), 99, x.dtype());
  SUBCASE("short convolutions") {
    const Tensor weight = normal({5, 4}, 2), history = normal({2, 3, 5}, 3);
    const ShortConvOptions options{.activation = GateActivation::silu, .history = history};
    const std::vector<Tensor> inputs{x, weight, history};
    const TapeResult expected =
        run_on_tape(inputs, cotangent, [&] { return short_conv(x, weight, options); });
    const Gradients gradients = allocate_like(inputs);
    const NoGradScope no_grad;
    short_conv_forward_into(x, weight, options, out);
    short_conv_backward_into(x, weight, options, cotangent, gradients);
    check_equal(expected, out, gradients);
    CHECK_THROWS_WITH_AS(short_conv_forward_into(x, weight, options, history), doctest::Contains("(2, 3, 5)"),
                         ShapeError);
  }
  SUBCASE("gated norms") {
    const Tensor weight = normal({5}, 2), gate = normal(x.shape(), 3);
    const RmsNormOptions options{.gate = gate};
    const std::vector<Tensor> inputs{x, weight, gate};
    const TapeResult expected = run_on_tape(inputs, cotangent, [&] { return rms_norm(x, weight, options); });
    const Gradients gradients = allocate_like(inputs);
    const NoGradScope no_grad;
    rms_norm_forward_into(x, weight, options, out);
    rms_norm_backward_into(x, weight, options, cotangent, gradients);
    check_equal(expected, out, gradients);
    CHECK_THROWS_WITH_AS(rms_norm_backward_into(x, weight, options, weight, gradients),
                         doctest::Contains("(5,)"), ShapeError);
  }
}
