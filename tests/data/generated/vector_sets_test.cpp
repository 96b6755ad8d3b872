#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "tests/data/generated/generated.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("set-maximum: targets are the maxima of the elements, whose numbers are in range") {
  const auto set = make_set("set-maximum", integers({{"min_length", 2}, {"max_length", 8}}), {.seed = 3});
  const Batch batch = set->batch(first_indices(300));
  REQUIRE(batch.elements.shape() == Shape{300, 8, 1});
  CHECK(!batch.tokens.defined());
  CHECK(set->info().length == 7);
  CHECK(set->info().feature_count == 1);
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
  const auto set = make_set("set-mixture", integers({{"min_length", 100}, {"max_length", 200}}), {.seed = 3});
  const Batch batch = set->batch(first_indices(400));
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

TEST_CASE("sets of vectors depend only on the seed, the split and the index") {
  const auto example = [](const DatasetRequest& request, int64_t index) {
    const auto set = make_set("set-mixture", integers({{"max_length", 10}}), request);
    return set->batch(std::vector<int64_t>{index}).elements.to_vector();
  };
  CHECK(example({.seed = 1}, 8) == example({.limit = 9, .seed = 1}, 8));
  CHECK(example({.seed = 1}, 8) != example({.seed = 1}, 7));
  CHECK(example({.seed = 1}, 8) != example({.seed = 2}, 8));
  CHECK(example({.seed = 1}, 8) != example({.split = "test", .seed = 1}, 8));
  CHECK(make_set("set-mixture")->size() == 1'000'000);
  CHECK(make_set("set-maximum", {}, {.split = "test"})->size() == 2000);
  CHECK(problems_of("set-maximum", integers({{"min_length", 11}, {"max_length", 10}})) ==
        "min_length: expected at most max_length = 10, got 11\n");
}
