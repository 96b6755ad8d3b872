#include <doctest/doctest.h>

#include <cmath>

#include "models/attention/attention.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/sum.h"
#include "ops/view.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using NamedOptions = std::vector<std::pair<std::string, OptionValue>>;

std::unique_ptr<Attention> make_performer(const NamedOptions& options) {
  return make_attention("performer", find_attention_kind("performer").make_options(options));
}

Tensor attend(const Attention& attention, const Tensor& q, const Tensor& k, const Tensor& v,
              const ForwardContext& context = {}, bool causal = true) {
  return attention.forward(q, k, v, {.causal = causal, .key_lengths = {}}, context, "layers.0");
}

// Returns |a - b| / |b|, where |x| is the Euclidean norm of all elements.
double relative_distance(const Tensor& a, const Tensor& b) {
  return std::sqrt(sum(square(sub(a, b))).item() / sum(square(b)).item());
}

// Returns the relative distance between the results of Performer and of softmax attention, averaged over four
// samples of the random features. Queries and keys have the standard deviation `std`.
double approximation_error(int64_t features, bool orthogonal, double std, bool causal) {
  constexpr int64_t kDraws = 4;
  const Shape shape{1, 64, 1, 64};
  const Tensor q = mul(normal(shape, 1), std), k = mul(normal(shape, 2), std), v = normal(shape, 3);
  const Tensor exact = attend(*make_attention("softmax", find_attention_kind("softmax").default_options()), q,
                              k, v, {}, causal);
  double total = 0;
  for (int64_t seed = 0; seed < kDraws; ++seed)
    total += relative_distance(
        attend(*make_performer({{"features", features}, {"orthogonal", orthogonal}, {"feature_seed", seed}}),
               q, k, v, {}, causal),
        exact);
  return total / kDraws;
}

const Tensor kQueries = normal({2, 9, 2, 4}, 1), kKeys = normal({2, 9, 2, 4}, 2),
             kValues = normal({2, 9, 2, 4}, 3);

}  // namespace

TEST_CASE("performer: the error against softmax attention is proportional to 1 / sqrt(features)") {
  for (const bool causal : {false, true}) {
    const double few = approximation_error(64, true, 0.25, causal);
    const double some = approximation_error(256, true, 0.25, causal);
    const double many = approximation_error(1024, true, 0.25, causal);
    CAPTURE(few);
    CAPTURE(some);
    CAPTURE(many);
    CHECK(few < 0.2);
    CHECK(few / some > 1.5);
    CHECK(few / some < 2.7);
    CHECK(some / many > 1.5);
    CHECK(some / many < 2.7);
  }
}

TEST_CASE("performer: orthogonal features have a smaller error than independent features") {
  CHECK(approximation_error(64, true, 0.25, false) < approximation_error(64, false, 0.25, false));
}

// The features of a key depend only on this key. If they depended on the maximum over all keys, a large later
// key would change earlier results.
TEST_CASE("performer: a much larger last key changes no earlier result") {
  for (const char* kernel : {"softmax", "relu"}) {
    const auto performer = make_performer({{"kernel", std::string(kernel)}});
    for (const DType dtype : {DType::float32, DType::float64}) {
      const Tensor q = kQueries.to(dtype), k = kKeys.to(dtype), v = kValues.to(dtype);
      const Tensor dominant = k.clone();
      slice(dominant, 1, 8, 9).copy_from(mul(slice(k, 1, 8, 9), 8));
      const Tensor before = attend(*performer, q, k, v), after = attend(*performer, q, dominant, v);
      CHECK(max_difference(slice(before, 1, 0, 8), slice(after, 1, 0, 8)) == 0);
      CHECK(max_difference(before, after) > 0);
    }
  }
}

TEST_CASE("performer: large inputs give finite results") {
  const auto performer = make_performer({});
  for (const double factor : {10.0, 1000.0}) {
    const Tensor q = mul(kQueries, factor).to(DType::float32), k = mul(kKeys, factor).to(DType::float32);
    CHECK(std::isfinite(sum(square(attend(*performer, q, k, kValues.to(DType::float32)))).item()));
  }
}

TEST_CASE("performer: training draws features every redraw_steps steps, and evaluation uses the first draw") {
  const auto training = [](uint64_t step) {
    return ForwardContext{.training = true, .seed = 1, .step = step};
  };
  const auto redrawn = make_performer({{"redraw_steps", int64_t{3}}});
  const auto at_step = [&](uint64_t step) {
    return attend(*redrawn, kQueries, kKeys, kValues, training(step));
  };
  const Tensor first = at_step(0), second = at_step(3);
  CHECK(max_difference(first, at_step(2)) == 0);
  CHECK(max_difference(first, second) > 0);
  CHECK(max_difference(second, at_step(5)) == 0);
  CHECK(max_difference(first, attend(*redrawn, kQueries, kKeys, kValues, {.step = 4})) == 0);
  // The features depend on the step and not on stored state: a new object draws the same features.
  const auto again = make_performer({{"redraw_steps", int64_t{3}}});
  CHECK(max_difference(second, attend(*again, kQueries, kKeys, kValues, training(4))) == 0);
  const auto fixed = make_performer({});
  CHECK(max_difference(attend(*fixed, kQueries, kKeys, kValues, training(0)),
                       attend(*fixed, kQueries, kKeys, kValues, training(99))) == 0);
}

TEST_CASE("performer: features differ between layers and between feature seeds") {
  const auto performer = make_performer({}), other = make_performer({{"feature_seed", int64_t{1}}});
  const Tensor first = attend(*performer, kQueries, kKeys, kValues);
  CHECK(max_difference(first, attend(*other, kQueries, kKeys, kValues)) > 0);
  CHECK(max_difference(first, performer->forward(kQueries, kKeys, kValues, {}, {}, "layers.1")) > 0);
}

TEST_CASE("performer: antithetic features need an even number") {
  CHECK_NOTHROW(make_performer({{"antithetic", true}, {"features", int64_t{8}}}));
  CHECK_THROWS_WITH_AS(
      make_performer({{"antithetic", true}, {"features", int64_t{7}}}),
      "attention_options.features: antithetic features come in pairs: expected an even number, got 7",
      OptionError);
}
