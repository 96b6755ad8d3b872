#include "data/set_tasks.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "core/base/errors.h"

using namespace tapeformer;

namespace {

std::vector<int64_t> set_indices(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

}  // namespace

TEST_CASE("set-maximum: targets are the maxima of the elements, whose numbers are in range") {
  const SetMaximumTask set({.min_length = 2, .max_length = 8, .seed = 3});
  const Batch batch = set.batch(set_indices(300));
  REQUIRE(batch.elements.shape() == Shape{300, 8, 1});
  CHECK(!batch.tokens.defined());
  CHECK(set.info().length == 7);
  CHECK(set.info().feature_count == 1);
  std::set<int64_t> lengths;
  for (int64_t b = 0; b < 300; ++b) {
    const float* const row = batch.elements.data<float>() + 8 * b;
    const int64_t length = batch.lengths.data<int64_t>()[b];
    lengths.insert(length);
    CHECK(*std::max_element(row, row + length) == batch.targets.data<float>()[b]);
    CHECK(*std::min_element(row, row + length) > 0);
    CHECK(batch.targets.data<float>()[b] < 1);
    CHECK(std::all_of(row + length, row + 8, [](float x) { return x == 0; }));
  }
  CHECK(lengths == std::set<int64_t>{2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("set-mixture: the mean log-likelihood is near its expectation, and points are near the square") {
  const SetMixtureTask set({.min_length = 100, .max_length = 200, .seed = 3});
  const Batch batch = set.batch(set_indices(400));
  const auto targets = batch.targets.to_vector();
  const double mean = std::accumulate(targets.begin(), targets.end(), 0.0) / 400;
  // If the four components of a mixture do not overlap, the entropy of the mixture is the entropy of one
  // component plus the entropy of the mixture weights. A component is a two-dimensional Gaussian with the
  // standard deviation 0.3, and its entropy is 0.430. The mean entropy of four random weights is
  // 1/2 + 1/3 + 1/4. The expected log-likelihood of a point is minus the entropy of the mixture. Overlaps
  // increase the log-likelihood slightly.
  const double distant = -0.430 - (1.0 / 2 + 1.0 / 3 + 1.0 / 4);
  CHECK(mean > distant - 0.02);
  CHECK(mean < distant + 0.1);
  const auto points = batch.elements.to_vector();
  CHECK(*std::max_element(points.begin(), points.end()) < 6);
  CHECK(*std::max_element(points.begin(), points.end()) > 4);
  CHECK(*std::min_element(points.begin(), points.end()) > -6);
}

TEST_CASE("set tasks: examples depend only on the seed, the split and the index") {
  const SetMixtureTask set({.seed = 1}), again({.example_count = 9, .seed = 1}), other_seed({.seed = 2}),
      test({.split = "test", .seed = 1});
  const auto example = [](const SetTask& task, int64_t index) {
    return task.batch(std::vector<int64_t>{index}).elements.to_vector();
  };
  CHECK(example(set, 8) == example(again, 8));
  CHECK(example(set, 8) != example(set, 7));
  CHECK(example(set, 8) != example(other_seed, 8));
  CHECK(example(set, 8) != example(test, 8));
  CHECK(set.size() == SetTask::kTrainExampleCount);
  CHECK(test.size() == SetTask::kEvalExampleCount);
}

TEST_CASE("set tasks: options that are out of range are errors") {
  CHECK_THROWS_WITH_AS(SetMaximumTask({.min_length = 11, .max_length = 10}),
                       "set-maximum: min_length 11, expected 0 to max_length, 10", ConfigError);
  CHECK_THROWS_WITH_AS(SetMixtureTask({.components = 0}), "set-mixture: components 0, expected at least 1",
                       ConfigError);
  CHECK_THROWS_WITH_AS(SetMaximumTask({.split = "tset"}), doctest::Contains("did you mean \"test\"?"),
                       ConfigError);
}
