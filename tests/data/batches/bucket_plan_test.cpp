#include "data/batches/bucket_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "core/base/errors.h"
#include "core/random/rng.h"

using namespace tapeformer;

namespace {

std::vector<int64_t> random_lengths(int64_t count) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < count; ++i)
    lengths.push_back(
        20 + static_cast<int64_t>(RandomStream(3, "lengths").uniform_below(static_cast<uint64_t>(i), 800)));
  return lengths;
}

}  // namespace

TEST_CASE("plans of batches respect the largest size, contain every example once and differ between epochs") {
  const std::vector<int64_t> lengths = random_lengths(1000);
  const BucketPlanOptions options{.max_batch_length = 4000, .seed = 5};
  const auto first = plan_batches(lengths, options, 0);
  CHECK(first == plan_batches(lengths, options, 0));
  CHECK(first != plan_batches(lengths, options, 1));
  CHECK(first != plan_batches(lengths, {.max_batch_length = 4000, .seed = 6}, 0));
  std::vector<int> seen(1000, 0);
  for (const auto& batch : first) {
    int64_t longest = 0;
    for (const int64_t i : batch) {
      ++seen[static_cast<size_t>(i)];
      longest = std::max(longest, lengths[static_cast<size_t>(i)]);
    }
    CHECK(longest * static_cast<int64_t>(batch.size()) <= 4000);
  }
  CHECK(seen == std::vector<int>(1000, 1));
  CHECK(compute_padding_share(lengths, first) < 0.06);
  const auto small = plan_batches(lengths, {.max_batch_length = 100, .max_examples = 2}, 0);
  CHECK(std::all_of(small.begin(), small.end(), [](const auto& batch) { return batch.size() <= 2; }));
  const auto sorted = plan_batches(lengths, {.max_batch_length = 4000, .shuffle = false}, 3);
  CHECK(lengths[static_cast<size_t>(sorted.front()[0])] <=
        lengths[static_cast<size_t>(sorted.back().back())]);
  CHECK(plan_batches({}, options, 0).empty());
  CHECK_THROWS_AS(plan_batches(lengths, {.max_batch_length = 0}, 0), ConfigError);
}

TEST_CASE("each epoch of a plan has each example once, also if epochs differ in their number of batches") {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 57; ++i) lengths.push_back(20 + i * 37 % 61);
  const BucketPlan plan(lengths, {.max_batch_length = 200, .max_examples = 5, .shuffle = true, .seed = 4});
  int64_t step = 0;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    CHECK(plan.count_complete_epochs(step) == epoch);
    std::vector<int64_t> seen;
    const auto end = static_cast<int64_t>(plan.count_batches(static_cast<double>(epoch + 1)));
    for (; step < end; ++step) {
      CHECK(plan.count_complete_epochs(step) == epoch);
      const auto batch = plan.list_examples(step);
      CHECK(batch.size() <= 5);
      seen.insert(seen.end(), batch.begin(), batch.end());
    }
    std::sort(seen.begin(), seen.end());
    std::vector<int64_t> all(lengths.size());
    std::iota(all.begin(), all.end(), 0);
    CHECK(seen == all);
  }
  const BucketPlan again(lengths, {.max_batch_length = 200, .max_examples = 5, .shuffle = true, .seed = 4});
  CHECK(again.list_examples(step - 1) ==
        plan.list_examples(step - 1));  // a step does not depend on calls for earlier steps
}
