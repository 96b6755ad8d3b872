#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include "core/base/errors.h"
#include "tests/data/generated/generated.h"
#include "tests/support/temp_dir.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

using Values = std::vector<int64_t>;

// An example as lists of integers. `targets` is empty if the next tokens are the targets.
struct ReadExample {
  Values tokens, mask, targets;
  auto operator<=>(const ReadExample&) const = default;
};

Values integers_of(const Tensor& tensor) {
  if (!tensor.defined()) return {};
  const auto values = tensor.to_vector();
  return {values.begin(), values.end()};
}

ReadExample read_recall_example(const Dataset& set, int64_t index) {
  const Batch batch = set.batch(Values{index});
  return {integers_of(batch.tokens), integers_of(batch.mask), integers_of(batch.token_targets)};
}

// Checks an example of mqar against a search for the key of each query among the pairs.
void check_recall(const ReadExample& one, int64_t length, int64_t pairs, int64_t tokens) {
  REQUIRE(one.tokens.size() == static_cast<size_t>(length + 1));
  std::map<int64_t, int64_t> values;
  std::set<int64_t> distinct_values, queried;
  for (size_t i = 0; i < static_cast<size_t>(2 * pairs); i += 2) {
    const int64_t key = one.tokens[i], value = one.tokens[i + 1];
    CHECK((key >= 1 && key < tokens / 2));
    CHECK((value >= tokens / 2 && value < tokens));
    values[key] = value;
    distinct_values.insert(value);
  }
  CHECK(values.size() == static_cast<size_t>(pairs));
  CHECK(distinct_values.size() == static_cast<size_t>(pairs));
  for (size_t t = 0; t < static_cast<size_t>(length); ++t) {
    CHECK((one.tokens[t] >= 0 && one.tokens[t] < tokens));
    if (one.mask[t] == 0) {
      CHECK(one.targets[t] == 0);
      continue;
    }
    CHECK(t >= static_cast<size_t>(2 * pairs));
    CHECK(t % 2 == 0);
    REQUIRE(values.contains(one.tokens[t]));
    CHECK(one.targets[t] == values.at(one.tokens[t]));
    CHECK(queried.insert(one.tokens[t]).second);
  }
  CHECK(queried.size() == values.size());
}

}  // namespace

TEST_CASE("mqar: each key is queried once, and the target of a query is the value of its key") {
  for (const auto& [length, pairs, tokens] :
       {std::tuple{64, 4, 8192}, {64, 16, 64}, {8, 2, 6}, {256, 64, 1024}}) {
    CAPTURE(length);
    const auto task =
        make_set("mqar", integers({{"max_length", length}, {"tokens", tokens}, {"pairs", pairs}}));
    for (int64_t i = 0; i < 20; ++i) check_recall(read_recall_example(*task, i), length, pairs, tokens);
  }
}

TEST_CASE("mqar: min_pairs adds easier sequences to the training") {
  std::map<int64_t, int64_t> counts;
  const OptionValues options =
      integers({{"max_length", 64}, {"tokens", 64}, {"pairs", 16}, {"min_pairs", 3}});
  const auto train = make_set("mqar", options);
  for (int64_t i = 0; i < 300; ++i) {
    const ReadExample one = read_recall_example(*train, i);
    const auto pairs = std::accumulate(one.mask.begin(), one.mask.end(), int64_t{0});
    ++counts[pairs];
    check_recall(one, 64, pairs, 64);
  }
  CHECK(counts.size() == 3);
  // The probabilities are 1/7, 2/7 and 4/7. The limits are about 4 standard deviations from the means.
  for (const int64_t pairs : {4, 8, 16})
    CHECK(std::abs(static_cast<double>(counts[pairs]) - 300 * 16 / 7.0 / static_cast<double>(pairs)) < 35);
  const auto valid = make_set("mqar", options, {.split = "valid"});
  for (int64_t i = 0; i < 20; ++i) check_recall(read_recall_example(*valid, i), 64, 16, 64);
}

TEST_CASE("mqar: the gaps have the power-law distribution") {
  constexpr int64_t kCount = 4000, kPlaces = 15;
  for (const double power : {0.01, 1.0}) {
    CAPTURE(power);
    OptionValues options = integers({{"max_length", 32}, {"tokens", 64}, {"pairs", 1}});
    options.set("power", power);
    const auto task = make_set("mqar", options);
    std::vector<double> expected, counts(kPlaces);
    for (int64_t n = 0; n < kPlaces; ++n) expected.push_back(std::pow(static_cast<double>(n + 1), power - 1));
    const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
    for (int64_t i = 0; i < kCount; ++i) {
      const ReadExample one = read_recall_example(*task, i);
      const auto query = std::find(one.mask.begin(), one.mask.end(), 1) - one.mask.begin();
      ++counts[static_cast<size_t>(query / 2 - 1)];
    }
    for (size_t n = 0; n < expected.size(); ++n) {
      const double mean = expected[n] / sum * kCount;
      CAPTURE(n);
      CHECK(std::abs(counts[n] - mean) < 5 * std::sqrt(mean));
    }
  }
}

TEST_CASE("parity: the target at each bit is the parity of the bits up to it") {
  std::set<int64_t> lengths;
  const auto task = make_set("parity", integers({{"max_length", 40}, {"min_length", 3}}));
  for (int64_t i = 0; i < 1000; ++i) {
    const ReadExample one = read_recall_example(*task, i);
    const auto bits = std::accumulate(one.mask.begin(), one.mask.end(), int64_t{0});
    lengths.insert(bits);
    Values mask(40, 0), targets(40, 0);
    for (size_t t = 0; t < static_cast<size_t>(bits); ++t) {
      mask[t] = 1;
      targets[t] =
          std::accumulate(one.tokens.begin(), one.tokens.begin() + static_cast<int64_t>(t) + 1, int64_t{0}) %
          2;
    }
    CHECK(one.mask == mask);
    CHECK(one.targets == targets);
    CHECK(
        std::all_of(one.tokens.begin(), one.tokens.end(), [](int64_t bit) { return bit == 0 || bit == 1; }));
    CHECK(std::all_of(one.tokens.begin() + bits, one.tokens.end(), [](int64_t bit) { return bit == 0; }));
  }
  CHECK(*lengths.begin() == 3);
  CHECK(*lengths.rbegin() == 40);
  CHECK(lengths.size() == 38);
}

TEST_CASE("palindrome: the second half is the first half in reverse order") {
  const auto task = make_set("palindrome", integers({{"max_length", 32}, {"symbols", 20}}));
  CHECK(task->info().vocabulary == 21);
  for (int64_t i = 0; i < 100; ++i) {
    const ReadExample one = read_recall_example(*task, i);
    CHECK(one.targets.empty());
    CHECK(one.tokens[16] == 0);
    CHECK(one.tokens == Values(one.tokens.rbegin(), one.tokens.rend()));
    CHECK(std::count(one.tokens.begin(), one.tokens.end(), 0) == 1);
    // Position t predicts token t + 1.
    for (size_t t = 0; t < one.mask.size(); ++t) CHECK(one.mask[t] == (t + 1 > 16));
  }
}

TEST_CASE("recall tasks depend on seed, split and index only, and the splits differ") {
  for (const std::string name : {"mqar", "parity", "palindrome"}) {
    CAPTURE(name);
    std::set<ReadExample> examples;
    for (const std::string split : {"train", "valid", "test"}) {
      const auto set = make_set(name, {}, {.split = split, .limit = 200, .seed = 3});
      CHECK(set->size() == 200);
      for (int64_t i = 0; i < 200; ++i) examples.insert(read_recall_example(*set, i));
      CHECK(read_recall_example(*set, 7) ==
            read_recall_example(*make_set(name, {}, {.split = split, .seed = 3}), 7));
      CHECK(read_recall_example(*set, 7) !=
            read_recall_example(*make_set(name, {}, {.split = split, .seed = 4}), 7));
      const Tensor several = set->batch(Values{3, 7}).tokens;
      CHECK(integers_of(several.view({129}, {1}, 129)) == read_recall_example(*set, 7).tokens);
    }
    CHECK(examples.size() == 600);
  }
}

TEST_CASE("the test split has its own length and number of pairs") {
  const OptionValues recall =
      integers({{"max_length", 32}, {"tokens", 64}, {"pairs", 4}, {"test_length", 96}, {"test_pairs", 24}});
  const OptionValues parity = integers({{"max_length", 32}, {"test_length", 96}});
  for (const std::string name : {"mqar", "parity", "palindrome"}) {
    CAPTURE(name);
    for (const std::string split : {"train", "valid", "test"}) {
      const int64_t length = split == "test" ? 96 : 32;
      const auto set = make_set(name, name == "mqar" ? recall : parity, {.split = split});
      CHECK(set->info().length == length);
      CHECK(set->info().model_length() == 96);
      CHECK(set->batch(Values{0}).tokens.shape() == Shape{1, length + 1});
    }
    CHECK(find_dataset_kind(name).has_validation_split({}));
  }
  check_recall(read_recall_example(*make_set("mqar", recall, {.split = "test"}), 0), 96, 24, 64);
  check_recall(read_recall_example(*make_set("mqar", recall, {.split = "valid"}), 0), 32, 4, 64);
  for (const auto& [options, length] :
       {std::pair(parity, 96), std::pair(integers({{"max_length", 32}}), 32)}) {
    const auto bits = make_set("parity", options, {.split = "test"});
    for (int64_t i = 0; i < 20; ++i)
      CHECK(read_recall_example(*bits, i).mask == Values(static_cast<size_t>(length), 1));
  }
}

TEST_CASE("impossible options of recall tasks are named") {
  CHECK(problems_of("mqar", {}).empty());
  CHECK(
      problems_of("mqar", integers({{"pairs", 33}})) ==
      "pairs: each pair and each query takes two positions, expected 1 to 32 pairs for 128 tokens, got 33\n");
  CHECK(problems_of("mqar", integers({{"pairs", 30}, {"tokens", 60}})) ==
        "pairs: a vocabulary of 60 tokens has 29 keys, expected at most 29 pairs, got 30\n");
  CHECK(problems_of("mqar", integers({{"max_length", 129}})) ==
        "max_length: keys have even positions, expected an even number, got 129\n");
  CHECK(problems_of("mqar", integers({{"test_length", 16}})) ==
        "test_length: expected at least 4 * pairs = 32, or 0 (max_length), got 16\n");
  for (const std::string name : {"mqar", "parity", "palindrome"})
    CHECK(problems_of(name, integers({{"test_length", 7}})) ==
          "test_length: expected at least 8, or 0 (max_length), got 7\n");
  for (const int64_t pairs : {int64_t{0}, int64_t{4}})
    CHECK(problems_of("mqar", integers({{"test_length", 65}, {"test_pairs", pairs}})) ==
          "test_length: keys have even positions, expected an even number, got 65\n");
  CHECK(problems_of("mqar", integers({{"test_length", 64}, {"test_pairs", 17}})) ==
        "test_pairs: each pair and each query takes two positions, expected 1 to 16 pairs for 64 tokens, got "
        "17\n");
  CHECK(problems_of("mqar", integers({{"min_pairs", 9}})) == "min_pairs: expected 0 to pairs = 8, got 9\n");
  CHECK(problems_of("parity", integers({{"min_length", 129}})) ==
        "min_length: expected at most max_length = 128, got 129\n");
  CHECK(problems_of("palindrome", integers({{"max_length", 9}, {"test_length", 11}})) ==
        "max_length: the halves are equally long, expected an even number, got 9\n"
        "test_length: the halves are equally long, expected an even number, got 11\n");
  CHECK(message_of<ConfigError>([] {
          make_set("mqar", integers({{"pairs", 40}}));
        }) ==
        "mqar: pairs: each pair and each query takes two positions, expected 1 to 32 pairs for 128 tokens, "
        "got 40");
}
