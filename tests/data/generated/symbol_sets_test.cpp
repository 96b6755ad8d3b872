#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>

#include "core/base/errors.h"
#include "tests/data/generated/generated.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::vector<double> tokens_of(const DatasetRequest& request, int64_t index) {
  return make_set("copy", {}, request)->batch(std::vector<int64_t>{index}).tokens.to_vector();
}

}  // namespace

TEST_CASE("a copy example is w 0 w and zeros, and the mask selects the separator and the copy") {
  const auto task = make_set("copy");
  constexpr int64_t kCount = 2000, kLength = 128;
  const Batch batch = task->batch(first_indices(kCount));
  CHECK(batch.tokens.shape() == Shape{kCount, kLength + 1});
  CHECK(batch.tokens.dtype() == DType::uint8);
  CHECK(batch.mask.shape() == Shape{kCount, kLength});
  CHECK(!batch.labels.defined());

  std::array<int64_t, 129> lengths{};
  std::array<int64_t, 11> symbols{};
  bool right = true;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint8_t* tokens = batch.tokens.data<uint8_t>() + i * (kLength + 1);
    const uint8_t* mask = batch.mask.data<uint8_t>() + i * kLength;
    const int64_t n = std::find(tokens, tokens + kLength, 0) - tokens;
    ++lengths[static_cast<size_t>(n)];
    for (int64_t t = 0; t <= kLength; ++t) {
      const uint8_t expected = t < n ? tokens[t] : t > n && t <= 2 * n ? tokens[t - n - 1] : 0;
      right = right && tokens[t] == expected && tokens[t] <= 10;
      // Token n is the separator, and the tokens n + 1 to 2 * n are the copied symbols. The mask must select
      // exactly the predictions of the copied symbols. Position t of the mask selects the prediction of token
      // t + 1.
      if (t < kLength) right = right && mask[t] == (t + 1 >= n && t + 1 <= 2 * n);
      if (t < n) ++symbols[tokens[t]];
    }
  }
  CHECK(right);
  for (int64_t n = 0; n <= kLength; ++n) {
    CAPTURE(n);
    const int64_t count = lengths[static_cast<size_t>(n)];
    // Each length from 32 to 62 is expected in 2000 / 31 = 64.5 examples. The limits are about 5 standard
    // deviations from this number.
    CHECK((n >= 32 && n <= 62 ? count > 30 && count < 105 : count == 0));
  }
  const double total = std::accumulate(symbols.begin(), symbols.end(), 0.0);
  for (size_t s = 1; s <= 10; ++s)
    CHECK(static_cast<double>(symbols[s]) / total == doctest::Approx(0.1).epsilon(0.05));
}

TEST_CASE("an example depends on seed, split and index only") {
  const DatasetRequest train{.seed = 5};
  CHECK(tokens_of(train, 7) == tokens_of(train, 7));
  std::set<std::vector<double>> different = {
      tokens_of(train, 7), tokens_of(train, 8), tokens_of({.seed = 6}, 7),
      tokens_of({.split = "valid", .seed = 5}, 7), tokens_of({.split = "test", .seed = 5}, 7)};
  CHECK(different.size() == 5);
  // An example does not depend on the batch or on the size of the data set.
  const auto task = make_set("copy", {}, {.limit = 10, .seed = 5});
  const Batch batch = task->batch(std::vector<int64_t>{3, 7, 3});
  CHECK(batch.tokens.view({129}, {1}, 129).to_vector() == tokens_of(train, 7));
  CHECK(batch.tokens.view({129}, {1}, 258).to_vector() == tokens_of(train, 3));
}

TEST_CASE("the copy task supports other lengths and vocabularies") {
  for (const int64_t max_length : {8, 9, 10, 31, 33, 1000}) {
    CAPTURE(max_length);
    const Batch batch =
        make_set("copy", integers({{"max_length", max_length}, {"symbols", 300}}))->batch(first_indices(50));
    CHECK(batch.tokens.dtype() == DType::int64);
    bool right = true;
    for (int64_t i = 0; i < 50; ++i) {
      const int64_t* tokens = batch.tokens.data<int64_t>() + i * (max_length + 1);
      const int64_t n = std::find(tokens, tokens + max_length, 0) - tokens;
      right = right && n >= max_length / 4 && n < (max_length - 1) / 2 && tokens[2 * n] == tokens[n - 1] &&
              tokens[2 * n + 1] == 0;
    }
    CHECK(right);
  }
}

TEST_CASE("lengths of the copy task for an odd max_length match the code of the authors") {
  for (const int64_t max_length : {9, 31, 32}) {
    CAPTURE(max_length);
    const Batch batch = make_set("copy", integers({{"max_length", max_length}}))->batch(first_indices(500));
    int64_t longest = 0;
    for (int64_t i = 0; i < 500; ++i) {
      const uint8_t* tokens = batch.tokens.data<uint8_t>() + i * (max_length + 1);
      longest = std::max(longest, std::find(tokens, tokens + max_length, 0) - tokens);
    }
    // The authors draw lengths by torch.randint(max_length // 4, (max_length - 1) // 2), which never returns
    // the second argument.
    CHECK(longest == (max_length - 1) / 2 - 1);
  }
}

TEST_CASE("options of the copy task that are out of range are config errors") {
  CHECK(message_of<ConfigError>([] {
          make_set("copy", integers({{"max_length", 7}}));
        }) == "copy: max_length: expected at least 8, got 7");
  for (const char* name : {"copy", "listops", "set-maximum"})
    CHECK(message_of<ConfigError>([&] { make_set(name, {}, {.split = "trian"}); }) ==
          "\"trian\" is not a split; did you mean \"train\"?");
}

TEST_CASE("a duplication example is 0 w 0 w 0, and the mask selects the second w") {
  constexpr int64_t kCount = 500, kLength = 32, kSymbols = 127;
  const auto task = make_set("duplication", integers({{"max_length", kLength}, {"symbols", kSymbols}}));
  CHECK(task->info().vocabulary == kSymbols + 1);
  CHECK(task->info().length == kLength);
  const Batch batch = task->batch(first_indices(kCount));
  CHECK(batch.tokens.dtype() == DType::uint8);
  bool right = true;
  std::set<int> seen;
  for (int64_t i = 0; i < kCount; ++i) {
    const uint8_t* tokens = batch.tokens.data<uint8_t>() + i * (kLength + 1);
    const uint8_t* mask = batch.mask.data<uint8_t>() + i * kLength;
    right = right && tokens[0] == 0 && tokens[16] == 0 && tokens[32] == 0;
    for (int64_t t = 1; t < 16; ++t) {
      right = right && tokens[t] >= 1 && tokens[t] <= kSymbols && tokens[16 + t] == tokens[t];
      seen.insert(tokens[t]);
    }
    // Position t predicts token t + 1. The mask must select the predictions of the tokens 17 to 31, which are
    // the second copy of the random symbols.
    for (int64_t t = 0; t < kLength; ++t) right = right && mask[t] == (t + 1 >= 17 && t + 1 <= 31);
  }
  CHECK(right);
  CHECK(seen.size() == kSymbols);
  CHECK(message_of<ConfigError>([] {
          make_set("duplication", integers({{"max_length", 33}}));
        }) == "duplication: max_length: the halves are equally long, expected an even number, got 33");
}
