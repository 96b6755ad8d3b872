#include "data/recall_tasks.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

// Draws numbers of a stream in order.
class Draws {
 public:
  explicit Draws(const RandomStream& stream) : stream_(stream) {}
  double uniform() { return stream_.uniform(number_++); }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(stream_.uniform_below(number_++, static_cast<uint64_t>(n)));
  }

 private:
  RandomStream stream_;
  uint64_t number_ = 0;
};

// Returns `count` distinct integers in [first, end), in random order.
std::vector<int64_t> draw_distinct(Draws& draws, int64_t count, int64_t first, int64_t end) {
  std::vector<int64_t> all(static_cast<size_t>(end - first));
  std::iota(all.begin(), all.end(), first);
  for (int64_t i = 0; i < count; ++i)
    std::swap(all[static_cast<size_t>(i)], all[static_cast<size_t>(i + draws.below(end - first - i))]);
  all.resize(static_cast<size_t>(count));
  return all;
}

// Draws a number of pairs; see RecallOptions::min_pairs.
int64_t draw_pair_count(Draws& draws, int64_t pairs, int64_t min_pairs) {
  int64_t halvings = 0;
  while (pairs >> (halvings + 1) >= min_pairs) ++halvings;
  if (halvings == 0) return pairs;
  const auto draw = static_cast<uint64_t>(1 + draws.below((int64_t{2} << halvings) - 1));
  return pairs >> (std::bit_width(draw) - 1);
}

// Draws `count` indices of `weights` without replacement. Each draw has probabilities proportional to the
// weights of the remaining indices. The indices in the order of exponential times with these rates have this
// distribution.
std::vector<int64_t> draw_weighted(Draws& draws, int64_t count, std::span<const double> weights) {
  std::vector<std::pair<double, int64_t>> times;
  for (const double weight : weights)
    times.emplace_back(-std::log(draws.uniform()) / weight, static_cast<int64_t>(times.size()));
  std::partial_sort(times.begin(), times.begin() + count, times.end());
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(times[static_cast<size_t>(i)].second);
  return indices;
}

SymbolTaskOptions with_symbols(SymbolTaskOptions options, int64_t symbols) {
  options.symbols = symbols;
  return options;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> find_option_problems(const RecallOptions& options) {
  std::vector<std::pair<std::string, std::string>> problems;
  const int64_t keys = std::max<int64_t>(options.tokens / 2 - 1, 0);
  const auto check_even = [&](const char* name, int64_t length) {
    if (length % 2 != 0)
      problems.emplace_back(name,
                            concat_text("keys have even positions, expected an even number, got ", length));
  };
  const auto check_split = [&](int64_t length, const char* pairs_name, int64_t pairs) {
    if (pairs < 1 || pairs > length / 4)
      problems.emplace_back(
          pairs_name, concat_text("each pair and each query takes two positions, expected 1 to ", length / 4,
                                  " pairs for ", length, " tokens, got ", pairs));
    else if (pairs > keys)
      problems.emplace_back(pairs_name, concat_text("a vocabulary of ", options.tokens, " tokens has ", keys,
                                                    " keys, expected at most ", keys, " pairs, got ", pairs));
  };
  const int64_t max_length = options.sequences.max_length, test_length = options.sequences.test_length;
  check_even("max_length", max_length);
  if (test_length >= SymbolTask::kMinLength) check_even("test_length", test_length);
  check_split(max_length, "pairs", options.pairs);
  if (options.test_pairs != 0)
    check_split(test_length > 0 ? test_length : max_length, "test_pairs", options.test_pairs);
  else if (test_length >= SymbolTask::kMinLength && options.pairs >= 1 && test_length < 4 * options.pairs)
    problems.emplace_back("test_length", concat_text("expected at least 4 * pairs = ", 4 * options.pairs,
                                                     ", or 0 (max_length), got ", test_length));
  if (options.min_pairs < 0 || options.min_pairs > options.pairs)
    problems.emplace_back("min_pairs",
                          concat_text("expected 0 to pairs = ", options.pairs, ", got ", options.min_pairs));
  if (!(options.power > 0))
    problems.emplace_back("power", concat_text("expected more than 0, got ", options.power));
  return problems;
}

RecallTask::RecallTask(const RecallOptions& options)
    : SymbolTask("mqar", with_symbols(options.sequences, options.tokens - 1)),
      pairs_(options.sequences.split == "test" && options.test_pairs > 0 ? options.test_pairs
                                                                         : options.pairs),
      min_pairs_(options.sequences.split == "train" && options.min_pairs > 0 ? options.min_pairs : pairs_),
      tokens_(options.tokens) {
  if (const auto problems = find_option_problems(options); !problems.empty())
    throw ConfigError("mqar: " + problems.front().first + ": " + problems.front().second);
  for (int64_t gap = 0; gap < info().length / 2 - min_pairs_; ++gap)
    gap_weights_.push_back(std::pow(static_cast<double>(gap + 1), options.power - 1));
}

void RecallTask::write_example(const RandomStream& stream, const Example& example) const {
  Draws draws(stream);
  const int64_t pairs = draw_pair_count(draws, pairs_, min_pairs_);
  const auto places = static_cast<size_t>(info().length / 2 - pairs);
  const std::vector<int64_t> keys = draw_distinct(draws, pairs, 1, tokens_ / 2),
                             values = draw_distinct(draws, pairs, tokens_ / 2, tokens_),
                             gaps = draw_weighted(draws, pairs, std::span(gap_weights_).first(places));
  for (int64_t t = 2 * pairs; t < info().length; ++t) example.tokens[t] = draws.below(tokens_);
  for (int64_t i = 0; i < pairs; ++i) {
    const auto pair = static_cast<size_t>(i);
    const int64_t query = 2 * (pairs + gaps[pair]);
    example.tokens[2 * i] = example.tokens[query] = keys[pair];
    example.tokens[2 * i + 1] = example.targets[query] = values[pair];
    example.mask[query] = 1;
  }
}

ParityTask::ParityTask(const ParityOptions& options)
    : SymbolTask("parity", with_symbols(options.sequences, 1)),
      min_length_(options.min_length > 0 ? options.min_length : options.sequences.max_length / 4) {
  const SymbolTaskOptions& sequences = options.sequences;
  if (options.min_length < 0 || min_length_ > sequences.max_length)
    throw ConfigError(concat_text("parity: min_length ", options.min_length, ", expected 0 to max_length, ",
                                  sequences.max_length));
  if (sequences.split == "test") min_length_ = info().length;
}

void ParityTask::write_example(const RandomStream& stream, const Example& example) const {
  Draws draws(stream);
  const int64_t bits = min_length_ + draws.below(info().length - min_length_ + 1);
  for (int64_t t = 0, parity = 0; t < bits; ++t) {
    example.tokens[t] = draws.below(2);
    parity = (parity + example.tokens[t]) % 2;
    example.targets[t] = parity;
    example.mask[t] = 1;
  }
}

void PalindromeTask::write_example(const RandomStream& stream, const Example& example) const {
  const int64_t length = info().length, half = length / 2;
  for (int64_t i = 0; i < half; ++i)
    example.tokens[i] = example.tokens[length - i] = static_cast<int64_t>(draw_symbol(stream, i));
  std::fill(example.mask + half, example.mask + length, uint8_t{1});
}

}  // namespace tapeformer
