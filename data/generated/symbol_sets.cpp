// Generated sequences of symbols, some of which test the memory of a model: recall of pairs, parity and
// reversal.
#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "core/base/errors.h"
#include "data/generated/generated_set.h"

namespace tapeformer {
namespace {

// 640,000 examples are 10,000 steps with batches of 64.
constexpr GeneratedSet::Sizes kSymbolSetSizes{.train = 640000, .evaluation = 1000};

// Returns the lengths that are out of range, of all splits. If `has_halves` is true, lengths must be even.
template <class Options>
OptionProblems find_length_problems(const Options& options, bool has_halves) {
  OptionProblems problems;
  const auto check_length = [&](const char* name, int64_t length, const char* alternative) {
    problems.require(length >= kMinSequenceLength, name,
                     concat_text("expected at least ", kMinSequenceLength, alternative, ", got ", length));
    problems.require(length < kMinSequenceLength || !has_halves || length % 2 == 0, name,
                     concat_text("the halves are equally long, expected an even number, got ", length));
  };
  check_length("max_length", options.max_length, "");
  if (options.test_length != 0) check_length("test_length", options.test_length, ", or 0 (max_length)");
  return problems;
}

class SymbolSet : public GeneratedSet {
 public:
  // Returns tokens (batch, length + 1), a uint8 mask (batch, length) and, if has_token_targets() is true,
  // token_targets (batch, length). The tokens are uint8 if the vocabulary has at most 256 tokens, otherwise
  // int64.
  Batch batch(std::span<const int64_t> indices) const override;

 protected:
  // The arrays of an example, whose elements are zero: `tokens` has info().length + 1 elements, and `mask`
  // and `targets` have info().length elements. `targets` is null unless has_token_targets() is true.
  struct Example {
    int64_t* tokens;
    uint8_t* mask;
    int64_t* targets;
  };

  template <class Options>
  SymbolSet(const std::string& name, int64_t vocabulary, const Options& options,
            const DatasetRequest& request)
      : GeneratedSet(request, kSymbolSetSizes, name + " task: ",
                     {.name = name,
                      .vocabulary = vocabulary,
                      .length = request.split == "test" && options.test_length > 0 ? options.test_length
                                                                                   : options.max_length,
                      .longest_split_length = std::max(options.max_length, options.test_length)}) {}

 private:
  virtual void write_example(Draws draws, const Example& example) const = 0;
  // Whether the targets differ from the next tokens.
  virtual bool has_token_targets() const { return false; }
};

Batch SymbolSet::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t length = info().length;
  Batch batch;
  batch.tokens = Tensor::zeros({count, length + 1}, DType::int64);
  batch.mask = Tensor::zeros({count, length}, DType::uint8);
  if (has_token_targets()) batch.token_targets = Tensor::zeros({count, length}, DType::int64);
  for (int64_t i = 0; i < count; ++i)
    write_example(
        draws_of(indices[static_cast<size_t>(i)]),
        {.tokens = batch.tokens.data<int64_t>() + i * (length + 1),
         .mask = batch.mask.data<uint8_t>() + i * length,
         .targets = has_token_targets() ? batch.token_targets.data<int64_t>() + i * length : nullptr});
  if (info().vocabulary <= 256) {
    batch.tokens = batch.tokens.to(DType::uint8);
    if (has_token_targets()) batch.token_targets = batch.token_targets.to(DType::uint8);
  }
  return batch;
}

// The options of sets of symbols that are uniformly distributed in [1, symbols], and the separator 0. The
// sets "copy" and "duplication" have no option test_length.
struct SymbolOptions {
  int64_t max_length = 128;  // predicted tokens of an example, which has max_length + 1 tokens
  int64_t test_length = 0;   // like max_length, for the split "test"; 0: max_length
  int64_t symbols = 10;
};

OptionTable<SymbolOptions> make_symbol_table(bool has_test_length) {
  OptionTable<SymbolOptions> table(OptionUse::data);
  add_max_length(table);
  if (has_test_length) add_test_length(table);
  add_symbols(table);
  return table;
}

class UniformSymbolSet : public SymbolSet {
 public:
  static OptionProblems find_problems(const SymbolOptions& options) {
    return find_length_problems(options, true);
  }

 protected:
  UniformSymbolSet(const std::string& name, const SymbolOptions& options, const DatasetRequest& request)
      : SymbolSet(name, options.symbols + 1, options, request), symbols_(options.symbols) {}
  int64_t draw_symbol(Draws& draws) const { return 1 + draws.below(symbols_); }

 private:
  int64_t symbols_;
};

// The copy task of "Transformers are RNNs" (Katharopoulos et al. 2020), section 4.1.1. A sequence contains n
// random symbols, the separator 0, the same n symbols, and zeros up to the end. The loss uses only the
// predictions of the separator and of the repeated symbols.
//
// The number n is uniformly distributed between max_length / 4 and (max_length - 1) / 2 - 1. For example, n
// is between 32 and 62 if max_length is 128.
class CopySet final : public UniformSymbolSet {
 public:
  CopySet(const SymbolOptions& options, const DatasetRequest& request)
      : UniformSymbolSet("copy", options, request) {}
  static OptionProblems find_problems(const SymbolOptions& options) {
    return find_length_problems(options, false);
  }

 private:
  void write_example(Draws draws, const Example& example) const override {
    const int64_t min_symbols = info().length / 4, max_symbols = (info().length - 1) / 2 - 1;
    const int64_t n = min_symbols + draws.below(max_symbols - min_symbols + 1);
    for (int64_t i = 0; i < n; ++i) example.tokens[i] = example.tokens[n + 1 + i] = draw_symbol(draws);
    std::fill(example.mask + n - 1, example.mask + 2 * n, uint8_t{1});
  }
};

// The duplication task of "Reformer" (Kitaev et al. 2020), section 5. A sequence has the form 0 w 0 w 0,
// where w contains max_length / 2 - 1 random symbols. The loss uses only the predictions of the symbols of
// the second w.
class DuplicationSet final : public UniformSymbolSet {
 public:
  DuplicationSet(const SymbolOptions& options, const DatasetRequest& request)
      : UniformSymbolSet("duplication", options, request) {}

 private:
  void write_example(Draws draws, const Example& example) const override {
    const int64_t half = info().length / 2;
    draws.uniform();  // the first number of the stream is unused
    for (int64_t i = 1; i < half; ++i) example.tokens[i] = example.tokens[half + i] = draw_symbol(draws);
    std::fill(example.mask + half, example.mask + 2 * half - 1, uint8_t{1});
  }
};

// The palindrome task of "Kimi Linear" (Kimi Team 2025), section 5.1. A sequence contains max_length / 2
// random symbols, the separator 0, and the same symbols in reverse order. The loss uses only the predictions
// of the reversed symbols.
class PalindromeSet final : public UniformSymbolSet {
 public:
  PalindromeSet(const SymbolOptions& options, const DatasetRequest& request)
      : UniformSymbolSet("palindrome", options, request) {}

 private:
  void write_example(Draws draws, const Example& example) const override {
    const int64_t length = info().length, half = length / 2;
    for (int64_t i = 0; i < half; ++i) example.tokens[i] = example.tokens[length - i] = draw_symbol(draws);
    std::fill(example.mask + half, example.mask + length, uint8_t{1});
  }
};

struct ParityOptions {
  int64_t max_length = 128, test_length = 0;  // as in SymbolOptions
  int64_t min_length = 0;                     // smallest number of bits; 0: max_length / 4
};

OptionTable<ParityOptions> make_parity_table() {
  OptionTable<ParityOptions> table(OptionUse::data);
  add_max_length(table);
  add_test_length(table);
  add_min_length(table);
  return table;
}

// Parity of bits. A sequence contains random bits, and the target at each position is the sum modulo 2 of all
// bits up to this position. The number of bits is uniformly distributed between min_length and max_length,
// and shorter sequences are padded with zeros that have no targets. All sequences of the split "test" have
// the largest number of bits: test_length, or max_length if test_length is 0.
class ParitySet final : public SymbolSet {
 public:
  ParitySet(const ParityOptions& options, const DatasetRequest& request)
      : SymbolSet("parity", 2, options, request), min_length_(choose_min_length(options)) {
    if (request.split == "test") min_length_ = info().length;
  }
  static OptionProblems find_problems(const ParityOptions& options) {
    OptionProblems problems = find_min_length_problems(options);
    for (const auto& problem : find_length_problems(options, false)) problems.push_back(problem);
    return problems;
  }

 private:
  void write_example(Draws draws, const Example& example) const override {
    const int64_t bits = min_length_ + draws.below(info().length - min_length_ + 1);
    for (int64_t t = 0, parity = 0; t < bits; ++t) {
      example.tokens[t] = draws.below(2);
      parity = (parity + example.tokens[t]) % 2;
      example.targets[t] = parity;
      example.mask[t] = 1;
    }
  }
  bool has_token_targets() const override { return true; }

  int64_t min_length_;
};

struct RecallOptions {
  int64_t max_length = 128, test_length = 0;  // as in SymbolOptions; even
  int64_t tokens = 8192;                      // size of the vocabulary
  int64_t pairs = 8;  // number of pairs in a sequence, at most a quarter of the length
  // In the split "train", the number of pairs is pairs / 2^k for all k >= 0 for which it is at least
  // min_pairs. The probability of k is proportional to 2^k, so that each number of pairs has equally many
  // queries. Easier sequences shorten the time until a model starts to learn. 0: pairs.
  int64_t min_pairs = 0;
  int64_t test_pairs = 0;  // like pairs, for the split "test"; 0: pairs
  double power = 0.01;     // exponent of the distribution of the gaps
};

OptionTable<RecallOptions> make_recall_table() {
  using O = RecallOptions;
  OptionTable<O> table(OptionUse::data);
  add_max_length(table);
  add_test_length(table);
  table.add("tokens", &O::tokens, "size of the vocabulary; half are keys and half are values")
      .use_for(OptionUse::model)
      .require_range(4, 1 << 20);
  table.add("pairs", &O::pairs, "pairs of a key and a value in a sequence").require_range(1, kMaxSize);
  table
      .add("min_pairs", &O::min_pairs,
           "smallest number of pairs in training, which halves pairs at random; 0: always pairs")
      .require_range(0, kMaxSize);
  table.add("test_pairs", &O::test_pairs, "pairs in a sequence of the test split; 0: pairs")
      .require_range(0, kMaxSize);
  table
      .add("power", &O::power,
           "gap n between the pairs and a query has a probability proportional to (n + 1)^(power - 1)")
      .require_range(1e-6, 10);
  return table;
}

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

// Multi-query associative recall as in "Zoology" (Arora et al. 2023), appendix E, and its released code. A
// sequence starts with pairs of a key and a value. Each key occurs once more later, as a query, and the
// target at the position of a query is the value of the key. No other position has a target. The other
// positions after the pairs contain random tokens of the whole vocabulary.
//
// The keys are distinct tokens in [1, tokens / 2), and the values are distinct tokens in [tokens / 2,
// tokens). Queries are at even positions. A query can directly follow the last pair, and a query that is 2 n
// tokens later has the gap n. The gaps are drawn without replacement, and the probability of gap n is
// proportional to (n + 1)^(power - 1).
class RecallSet final : public SymbolSet {
 public:
  RecallSet(const RecallOptions& options, const DatasetRequest& request)
      : SymbolSet("mqar", options.tokens, options, request),
        pairs_(request.split == "test" && options.test_pairs > 0 ? options.test_pairs : options.pairs),
        min_pairs_(request.split == "train" && options.min_pairs > 0 ? options.min_pairs : pairs_),
        tokens_(options.tokens) {
    for (int64_t gap = 0; gap < info().length / 2 - min_pairs_; ++gap)
      gap_weights_.push_back(std::pow(static_cast<double>(gap + 1), options.power - 1));
  }
  static OptionProblems find_problems(const RecallOptions& options);

 private:
  void write_example(Draws draws, const Example& example) const override {
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
  bool has_token_targets() const override { return true; }

  int64_t pairs_, min_pairs_, tokens_;
  std::vector<double> gap_weights_;  // element n is proportional to the probability of gap n
};

OptionProblems RecallSet::find_problems(const RecallOptions& options) {
  OptionProblems problems = find_length_problems(options, false);
  const int64_t keys = options.tokens / 2 - 1;
  const auto check_even = [&](const char* name, int64_t length) {
    problems.require(length % 2 == 0, name,
                     concat_text("keys have even positions, expected an even number, got ", length));
  };
  const auto check_split = [&](int64_t length, const char* pairs_name, int64_t pairs) {
    const bool has_room = pairs <= length / 4;
    problems.require(has_room, pairs_name,
                     concat_text("each pair and each query takes two positions, expected 1 to ", length / 4,
                                 " pairs for ", length, " tokens, got ", pairs));
    problems.require(!has_room || pairs <= keys, pairs_name,
                     concat_text("a vocabulary of ", options.tokens, " tokens has ", keys,
                                 " keys, expected at most ", keys, " pairs, got ", pairs));
  };
  const int64_t max_length = options.max_length, test_length = options.test_length;
  check_even("max_length", max_length);
  if (test_length >= kMinSequenceLength) check_even("test_length", test_length);
  check_split(max_length, "pairs", options.pairs);
  if (options.test_pairs != 0)
    check_split(test_length > 0 ? test_length : max_length, "test_pairs", options.test_pairs);
  else
    problems.require(test_length < kMinSequenceLength || test_length >= 4 * options.pairs, "test_length",
                     concat_text("expected at least 4 * pairs = ", 4 * options.pairs,
                                 ", or 0 (max_length), got ", test_length));
  problems.require(options.min_pairs <= options.pairs, "min_pairs",
                   concat_text("expected 0 to pairs = ", options.pairs, ", got ", options.min_pairs));
  return problems;
}

}  // namespace

std::vector<DatasetKind> make_symbol_kinds() {
  const auto has_validation = [](const OptionValues&) { return true; };
  return {make_generated_kind<CopySet>({.name = "copy"}, make_symbol_table(false)),
          make_generated_kind<DuplicationSet>({.name = "duplication"}, make_symbol_table(false)),
          make_generated_kind<RecallSet>({.name = "mqar", .has_validation_split = has_validation},
                                         make_recall_table()),
          make_generated_kind<ParitySet>({.name = "parity", .has_validation_split = has_validation},
                                         make_parity_table()),
          make_generated_kind<PalindromeSet>({.name = "palindrome", .has_validation_split = has_validation},
                                             make_symbol_table(true))};
}

}  // namespace tapeformer
