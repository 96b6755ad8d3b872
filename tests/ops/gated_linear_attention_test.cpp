#include "ops/gated_linear_attention.h"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>

#include "core/allocator.h"
#include "ops/linear_attention.h"
#include "ops/reference/gated_linear_attention.h"
#include "tests/ops/gated_inputs.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

double find_largest_magnitude(const Tensor& x) {
  double magnitude = 1e-30;
  for (const double value : x.to_vector()) magnitude = std::max(magnitude, std::abs(value));
  return magnitude;
}

// Returns the largest difference of each pair of tensors, relative to the largest element.
std::vector<double> find_relative_errors(const std::vector<Tensor>& actual,
                                         const std::vector<Tensor>& exact) {
  std::vector<double> errors;
  for (size_t i = 0; i < exact.size(); ++i)
    errors.push_back(
        exact[i].numel() == 0 ? 0 : max_difference(actual[i], exact[i]) / find_largest_magnitude(exact[i]));
  return errors;
}

void check_below(const std::vector<double>& errors, double limit) {
  for (size_t i = 0; i < errors.size(); ++i) {
    CAPTURE(i);
    CHECK(errors[i] < limit);
  }
}

}  // namespace

TEST_CASE("gated linear attention: values, states and gradients equal the reference") {
  const std::vector<GatedCase> cases = {
      {{1, 1, 1, 1, 1, 1}},
      {{2, 5, 5, 3, 3, 1}, TestDecay::channel},
      {{1, 95, 95, 2, 32, 32}, TestDecay::none},
      {{1, 96, 96, 2, 31, 33}, TestDecay::head, true, true},
      {{3, 97, 97, 1, 33, 31}, TestDecay::channel, true, true, false, true},
      {{1, 193, 193, 9, 8, 16}, TestDecay::fixed, false},
      {{1, 210, 210, 1, 65, 3}, TestDecay::channel, false, true, true},
      {{3, 30, 30, 2, 17, 20}, TestDecay::head, true, true, true, true},
      {{2, 100, 100, 2, 16, 16}, TestDecay::head, false, true, false, true, true},
      {{2, 100, 100, 2, 16, 16}, TestDecay::channel, true, true, true, false, true},
      {{2, 50, 50, 2, 5, 6}, TestDecay::none, true, true, false, false, true},
      {{2, 20, 20, 2, 5, 6}, TestDecay::none, false},
      {{3, 120, 120, 2, 9, 10}, TestDecay::head, true, true, true, true, true, true},
      {{1, 99, 99, 3, 20, 18}, TestDecay::channel, true, false, false, false, false, true},
      {{2, 99, 99, 3, 10, 33}, TestDecay::fixed, false, true, false, true, false, true},
      {{1, 120, 120, 2, 20, 20}, TestDecay::channel, true, true, false, false, false, false, 30},
  };
  for (const GatedCase& c : cases) {
    CAPTURE(describe(c));
    const GatedTestInputs in = make_gated_inputs(c);
    check_below(find_relative_errors(compute_gated(gated_linear_attention, in),
                                     compute_gated(gated_linear_attention_reference, in)),
                1e-12);
  }
}

TEST_CASE("gated linear attention of no tokens keeps the state") {
  const GatedTestInputs in = make_gated_inputs({{2, 0, 0, 2, 3, 4}, TestDecay::channel, true, true});
  const std::vector<Tensor> all = compute_gated(gated_linear_attention, in);
  CHECK(all[1].to_vector() == in.options.initial_state.to_vector());
  CHECK(all.back().to_vector() == normal(all[1].shape(), 22).to_vector());
  const GatedTestInputs empty = make_gated_inputs({{0, 4, 4, 2, 3, 3}});
  CHECK(compute_gated(gated_linear_attention, empty)[2].shape() == Shape{0, 4, 2, 3});
}

TEST_CASE("gated linear attention: rounding errors in float32 and bfloat16") {
  for (const double strength : {0.05, 0.4, 2.0, 20.0})
    for (const TestDecay decay : {TestDecay::head, TestDecay::channel})
      for (const bool erases : {false, true}) {
        const GatedCase c{
            {1, 512, 512, 1, 64, 64}, decay, erases, true, false, false, false, false, strength};
        CAPTURE(describe(c));
        const GatedTestInputs in = make_gated_inputs(c);
        const std::vector<Tensor> exact = compute_gated(gated_linear_attention, in);
        const std::vector<double> errors =
            find_relative_errors(compute_gated(gated_linear_attention, in, {DType::float32}), exact);
        CHECK(errors[0] < 1e-6);
        CHECK(errors[1] < 1e-6);
        check_below(errors, 1e-5);
        const std::vector<double> rounded =
            find_relative_errors(compute_gated(gated_linear_attention, in, {DType::bfloat16}), exact);
        CHECK(rounded[0] < 8e-3);
        check_below(rounded, 2e-2);
      }
}

TEST_CASE("gated linear attention: a token does not change earlier results") {
  GatedCase c{{1, 150, 150, 2, 16, 16}, TestDecay::channel, true, true};
  c.has_beta = true;
  const GatedTestInputs in = make_gated_inputs(c);
  const Tensor before = gated_linear_attention(in.q, in.k, in.v, in.options).out;
  for (const int64_t t : {0, 70, 96, 149}) {
    const GatedTestInputs changed = make_gated_inputs(c);
    for (const Tensor& x : {changed.q, changed.k, changed.v, changed.options.log_decay, changed.options.erase,
                            changed.options.beta})
      view_token(x, t).fill(-0.3);
    const Tensor after = gated_linear_attention(changed.q, changed.k, changed.v, changed.options).out;
    if (t > 0) CHECK(slice(before, 1, 0, t).to_vector() == slice(after, 1, 0, t).to_vector());
    CHECK(view_token(before, t).to_vector() != view_token(after, t).to_vector());
  }
}

TEST_CASE("gated linear attention: pieces with states equal one pass, with gradients") {
  for (const int64_t piece : {1, 2, 3, 7, 64}) {
    CAPTURE(piece);
    const auto in_pieces = [piece](const std::vector<Tensor>& x) {
      Tensor state = x[5];
      std::vector<Tensor> parts;
      for (int64_t t = 0; t < x[0].size(1); t += piece) {
        const auto part = [&](const Tensor& tensor) {
          return slice(tensor, 1, t, std::min(t + piece, tensor.size(1)));
        };
        const auto result =
            gated_linear_attention(part(x[0]), part(x[1]), part(x[2]),
                                   {.log_decay = part(x[3]), .erase = part(x[4]), .initial_state = state});
        parts.push_back(result.out);
        state = result.final_state;
      }
      return concat(parts, 1);
    };
    const auto at_once = [](const std::vector<Tensor>& x) {
      return gated_linear_attention(x[0], x[1], x[2],
                                    {.log_decay = x[3], .erase = x[4], .initial_state = x[5]})
          .out;
    };
    const GatedTestInputs in = make_gated_inputs({{2, 130, 130, 2, 5, 6}, TestDecay::channel, true, true});
    for (const DType dtype : {DType::float64, DType::float32}) {
      const std::vector<Tensor> inputs = in.to(dtype).list();
      const Tensor cotangent = normal({2, 130, 2, 6}, 31, dtype);
      check_below(
          find_relative_errors(outcome(in_pieces, inputs, cotangent), outcome(at_once, inputs, cotangent)),
          dtype == DType::float64 ? 1e-12 : 1e-6);
    }
  }
}

TEST_CASE("gated linear attention: the step equals the parallel form and allocates nothing") {
  for (const TestDecay decay : {TestDecay::none, TestDecay::fixed, TestDecay::head, TestDecay::channel})
    for (const bool erases : {false, true})
      for (const DType dtype : {DType::float32, DType::float64}) {
        const GatedCase c{{2, 1000, 1000, 2, 33, 19}, decay, erases, false, false, false, false, true, 0.1};
        CAPTURE(describe(c));
        const GatedTestInputs in = make_gated_inputs(c).to(dtype);
        const auto exact = gated_linear_attention(in.q, in.k, in.v, in.options);
        const Tensor state = Tensor::zeros({2, 2, 33, 19}, dtype), out = Tensor::empty(in.v.shape(), dtype);
        const int64_t allocations = get_device_allocator().stats().allocation_count;
        run_gated_steps(in, state, out);
        CHECK(get_device_allocator().stats().allocation_count == allocations);
        check_below(find_relative_errors({out, state}, {exact.out, exact.final_state}),
                    dtype == DType::float32 ? 1e-5 : 1e-12);
      }
}

TEST_CASE("gated linear attention without decay and erase keys is a sum of outer products") {
  const GatedTestInputs in = make_gated_inputs({{2, 140, 140, 2, 9, 7}, TestDecay::none, false});
  CHECK(max_difference(
            gated_linear_attention(in.q, in.k, in.v).out,
            linear_attention(in.q, in.k, in.v,
                             {.causal = true, .feature_map = FeatureMap::identity, .normalized = false})) <
        1e-12);
}

TEST_CASE("gated linear attention with erase keys replaces the value of a key") {
  // Orthonormal keys are written twice with β = 1. Queries then return the second values only.
  constexpr int64_t kDim = 6;
  const Tensor k = Tensor::zeros({1, 2 * kDim, 1, kDim}, DType::float64);
  for (int64_t t = 0; t < 2 * kDim; ++t) k.data<double>()[t * kDim + t % kDim] = 1;
  const Tensor v = normal({1, 2 * kDim, 1, 3});
  const Tensor state = gated_linear_attention(k, k, v, {.erase = k}).final_state;
  CHECK(max_difference(state, reshape(slice(v, 1, kDim, 2 * kDim), {1, 1, kDim, 3})) < 1e-12);
}

TEST_CASE("gated linear attention: a decay of -infinity separates sequences") {
  const GatedTestInputs in = make_gated_inputs({{1, 100, 100, 2, 8, 8}, TestDecay::channel, true, true});
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Tensor decay = in.options.log_decay;
  view_token(decay, 60).fill(-kInf);
  const std::vector<Tensor> all = compute_gated(gated_linear_attention, in);
  const auto part = [&](const Tensor& x, int64_t begin, int64_t end) { return slice(x, 1, begin, end); };
  const auto second =
      gated_linear_attention(part(in.q, 60, 100), part(in.k, 60, 100), part(in.v, 60, 100),
                             {.log_decay = part(decay, 60, 100), .erase = part(in.options.erase, 60, 100)});
  CHECK(max_difference(part(all[0], 60, 100), second.out) < 1e-12);
  CHECK(max_difference(all[1], second.final_state) < 1e-12);
  for (const DType dtype : {DType::float64, DType::float32, DType::bfloat16})
    for (const Tensor& x : compute_gated(gated_linear_attention, in, {dtype}))
      for (const double value : x.to_vector()) CHECK(std::isfinite(value));
  decay.fill(-1e4);
  for (const Tensor& x : compute_gated(gated_linear_attention, in, {DType::float32}))
    for (const double value : x.to_vector()) CHECK(std::isfinite(value));
}

TEST_CASE("gated linear attention: boundaries separate sequences in both orders") {
  for (const bool reverse : {false, true}) {
    GatedTestInputs in = make_gated_inputs({{1, 9, 9, 2, 4, 3}, TestDecay::channel, true, false, reverse});
    in.options.boundaries = Tensor::from_vector<int64_t>({1, 0, 0, 0, 1, 1, 0, 0, 0}, {1, 9});
    const Tensor packed = gated_linear_attention(in.q, in.k, in.v, in.options).out;
    for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 4}, {4, 5}, {5, 9}}) {
      const auto part = [&](const Tensor& x) { return slice(x, 1, begin, end); };
      const auto alone = gated_linear_attention(
          part(in.q), part(in.k), part(in.v),
          {.log_decay = part(in.options.log_decay), .erase = part(in.options.erase), .reverse = reverse});
      CHECK(max_difference(part(packed), alone.out) < 1e-12);
    }
  }
}

TEST_CASE("gated linear attention: padding leaves the state unchanged") {
  const GatedTestInputs in = make_gated_inputs({{1, 100, 100, 2, 8, 8}});
  GatedLinearAttentionOptions options = in.options;
  options.lengths = Tensor::from_vector<int64_t>({70}, {1});
  const auto part = [&](const Tensor& x) { return slice(x, 1, 0, 70); };
  const auto padded = gated_linear_attention(in.q, in.k, in.v, options),
             exact =
                 gated_linear_attention(part(in.q), part(in.k), part(in.v),
                                        {.log_decay = part(options.log_decay), .erase = part(options.erase)});
  CHECK(padded.final_state.to_vector() == exact.final_state.to_vector());
  CHECK(part(padded.out).to_vector() == exact.out.to_vector());
  CHECK(find_largest_magnitude(slice(padded.out, 1, 70, 100)) < 1e-20);
}

TEST_CASE("gated linear attention checks its inputs") {
  const GatedTestInputs in = make_gated_inputs({{2, 7, 7, 2, 4, 3}});
  const auto fails = [&](const GatedLinearAttentionOptions& options, const std::string& text) {
    CAPTURE(text);
    try {
      gated_linear_attention(in.q, in.k, in.v, options);
      FAIL_CHECK("expected an error");
    } catch (const ShapeError& error) {
      CHECK(std::string(error.what()).find(text) != std::string::npos);
    }
  };
  fails({.log_decay = normal({2, 7})}, "log decays");
  fails({.log_decay = normal({2, 7, 2}).to(DType::float32)}, "log decays are float32");
  fails({.erase = normal({2, 7, 2, 3})}, "erase keys");
  fails({.beta = normal({2, 7, 2, 4})}, "beta");
  fails({.initial_state = normal({2, 2, 3, 4})}, "the initial state");
  fails({.lengths = Tensor::from_vector<int64_t>({3, 8}, {2})}, "is 8, expected 0 to 7");
  fails({.boundaries = Tensor::zeros({2, 6}, DType::int64)}, "boundaries");
  fails({.boundaries = Tensor::full({2, 7}, 2, DType::int64)}, "gated_linear_attention: index 2");
  CHECK_THROWS_AS(gated_linear_attention(in.q, slice(in.k, 1, 0, 6), in.v), ShapeError);
}
