#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <sstream>

#include "core/base/errors.h"
#include "tests/data/generated/generated.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr std::array<const char*, 16> kTokenStrings{"",  "0", "1", "2",    "3",    "4",    "5",   "6",
                                                    "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};

struct Example {
  std::vector<uint8_t> tokens;  // without padding
  int64_t value;
};

Example read_example(const Dataset& set, int64_t index) {
  const Batch batch = set.batch(std::vector<int64_t>{index});
  const auto* const tokens = batch.tokens.data<uint8_t>();
  return {{tokens, tokens + *batch.lengths.data<int64_t>()}, *batch.labels.data<int64_t>()};
}

std::string get_token_text(const Example& example) {
  std::string text;
  for (const uint8_t token : example.tokens)
    text += (text.empty() ? "" : " ") + std::string(kTokenStrings[token]);
  return text;
}

// Returns the value of the next expression in `words`, as defined by Nangia and Bowman (2018). If the
// expression is an operation, writes its nesting depth to `*depth`. Sets `*operands` to the maximum of
// `*operands` and all operand counts in the expression. A null `depth` or `operands` is ignored.
int evaluate_text(std::istringstream& words, int* depth = nullptr, size_t* operands = nullptr) {
  std::string word;
  words >> word;
  if (word[0] != '[') return std::stoi(word);
  std::vector<int> values;
  int deepest = 0;
  while (words >> std::ws && words.peek() != ']') {
    int inner = 1;
    values.push_back(evaluate_text(words, &inner, operands));
    deepest = std::max(deepest, inner);
  }
  std::string end;
  words >> end;
  if (depth) *depth = 1 + deepest;
  if (operands) *operands = std::max(*operands, values.size());
  std::sort(values.begin(), values.end());
  if (word == "[MIN") return values.front();
  if (word == "[MAX") return values.back();
  if (word == "[SM") return std::accumulate(values.begin(), values.end(), 0) % 10;
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

}  // namespace

TEST_CASE(
    "listops: labels are the results of the expressions, whose lengths, depths and operands are in range") {
  const auto set = make_set("listops", integers({{"max_length", 80}, {"max_depth", 5}, {"max_args", 4}}),
                            {.limit = 200, .seed = 3});
  std::set<int64_t> labels;
  std::set<uint8_t> tokens;
  size_t most_operands = 0;
  for (int64_t i = 0; i < set->size(); ++i) {
    const Example example = read_example(*set, i);
    CAPTURE(get_token_text(example));
    CHECK(example.tokens.size() >= 20);  // the default minimum is a quarter of max_length
    CHECK(example.tokens.size() <= 80);
    std::istringstream words(get_token_text(example));
    int depth = 1;
    CHECK(evaluate_text(words, &depth, &most_operands) == example.value);
    CHECK(depth <= 5);
    std::string rest;
    CHECK(!(words >> rest));
    labels.insert(example.value);
    tokens.insert(example.tokens.begin(), example.tokens.end());
  }
  CHECK(most_operands == 4);
  CHECK(labels.size() == 10);
  CHECK(tokens.size() == 15);  // all tokens but the padding
}

TEST_CASE("listops: a batch is padded with 0 and has lengths and labels") {
  const auto set = make_set("listops", integers({{"max_length", 32}}), {.seed = 1});
  const std::vector<int64_t> indices = {5, 0, 7};
  const Batch batch = set->batch(indices);
  REQUIRE(batch.tokens.shape() == Shape{3, 32});
  CHECK(!batch.mask.defined());
  CHECK(set->info().vocabulary == 16);
  CHECK(set->info().length == 31);
  for (int64_t i = 0; i < 3; ++i) {
    const Example example = read_example(*set, indices[static_cast<size_t>(i)]);
    const uint8_t* const row = batch.tokens.data<uint8_t>() + i * 32;
    const auto length = static_cast<int64_t>(example.tokens.size());
    CHECK(batch.lengths.data<int64_t>()[i] == length);
    CHECK(batch.labels.data<int64_t>()[i] == example.value);
    CHECK(std::equal(example.tokens.begin(), example.tokens.end(), row));
    CHECK(std::all_of(row + length, row + 32, [](uint8_t token) { return token == 0; }));
  }
}

TEST_CASE("listops: examples depend only on the seed, the split and the index") {
  const OptionValues options = integers({{"max_length", 40}});
  const auto set = make_set("listops", options, {.seed = 1});
  const auto test = make_set("listops", options, {.split = "test", .seed = 1});
  const auto tokens = [](const Dataset& of, int64_t index) { return read_example(of, index).tokens; };
  CHECK(tokens(*set, 8) == tokens(*make_set("listops", options, {.limit = 9, .seed = 1}), 8));
  CHECK(tokens(*set, 8) != tokens(*set, 7));
  CHECK(tokens(*set, 8) != tokens(*make_set("listops", options, {.seed = 2}), 8));
  CHECK(tokens(*set, 8) != tokens(*test, 8));
  CHECK(set->size() == 96000);
  CHECK(test->size() == 2000);
}

TEST_CASE("listops: the settings of the Long Range Arena give examples") {
  const auto set = make_set("listops", integers({{"max_length", 2000}, {"min_length", 500}}), {.seed = 1});
  for (int64_t i = 0; i < 3; ++i) CHECK(read_example(*set, i).tokens.size() >= 500);
}

TEST_CASE("listops: options without examples are errors") {
  CHECK(problems_of("listops", integers({{"min_length", 41}, {"max_length", 40}})) ==
        "min_length: expected at most max_length = 40, got 41\n");
  // The longest expression of two levels has 12 tokens.
  CHECK_THROWS_WITH_AS(
      make_set("listops", integers({{"min_length", 13}, {"max_length", 40}, {"max_depth", 2}})),
      doctest::Contains("random expressions has 13 to 40 tokens; increase ListOpsOptions::max_depth"),
      ConfigError);
}
