// Synthetic sequences that test the memory of a model: recall of many pairs, parity and reversal. See
// data/symbol_tasks.h for the properties that all synthetic sequences share.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/symbol_tasks.h"

namespace tapeformer {

struct RecallOptions {
  SymbolTaskOptions sequences = {};  // lengths must be even; `symbols` is ignored
  int64_t tokens = 8192;             // size of the vocabulary, at least 4
  int64_t pairs = 8;                 // number of pairs in a sequence, at most a quarter of the length
  int64_t test_pairs = 0;            // like pairs, for the split "test"; 0: pairs
  // In the split "train", the number of pairs is pairs / 2^k for all k >= 0 for which it is at least
  // min_pairs. The probability of k is proportional to 2^k, so that each number of pairs has equally many
  // queries. Easier sequences shorten the time until a model starts to learn. 0: pairs.
  int64_t min_pairs = 0;
  double power = 0.01;  // exponent of the distribution of the gaps, above 0
};

// Returns the options that leave no room for the pairs and queries or are out of range, with their problems.
// Checks all splits. find_length_problems() is a separate check.
std::vector<std::pair<std::string, std::string>> find_option_problems(const RecallOptions& options);

// Multi-query associative recall as in "Zoology" (Arora et al. 2023), appendix E, and its released code. A
// sequence starts with pairs of a key and a value. Each key occurs once more later, as a query, and the
// target at the position of a query is the value of the key. No other position has a target. The other
// positions after the pairs contain random tokens of the whole vocabulary.
//
// The keys are distinct tokens in [1, tokens / 2), and the values are distinct tokens in [tokens / 2,
// tokens). Queries are at even positions. A query can directly follow the last pair, and a query that is 2 n
// tokens later has the gap n. The gaps are drawn without replacement, and the probability of gap n is
// proportional to (n + 1)^(power - 1).
class RecallTask final : public SymbolTask {
 public:
  // Throws ConfigError for the first problem of find_length_problems() or find_option_problems().
  explicit RecallTask(const RecallOptions& options);

 private:
  void write_example(const RandomStream& stream, const Example& example) const override;
  bool has_token_targets() const override { return true; }

  int64_t pairs_, min_pairs_, tokens_;
  std::vector<double> gap_weights_;  // element n is proportional to the probability of gap n
};

struct ParityOptions {
  SymbolTaskOptions sequences = {};  // `symbols` is ignored
  int64_t min_length = 0;            // smallest number of bits; 0: max_length / 4
};

// Parity of bits. A sequence contains random bits, and the target at each position is the sum modulo 2 of all
// bits up to this position. The number of bits is uniformly distributed between min_length and max_length,
// and shorter sequences are padded with zeros that have no targets. All sequences of the split "test" have
// the largest number of bits: test_length, or max_length if test_length is 0.
class ParityTask final : public SymbolTask {
 public:
  explicit ParityTask(const ParityOptions& options);

 private:
  void write_example(const RandomStream& stream, const Example& example) const override;
  bool has_token_targets() const override { return true; }

  int64_t min_length_;
};

// The palindrome task of "Kimi Linear" (Kimi Team 2025), section 5.1. A sequence contains max_length / 2
// random symbols, the separator 0, and the same symbols in reverse order. The loss uses only the predictions
// of the reversed symbols. Throws ConfigError for odd lengths.
class PalindromeTask final : public SymbolTask {
 public:
  explicit PalindromeTask(const SymbolTaskOptions& options) : SymbolTask("palindrome", options, true) {}

 private:
  void write_example(const RandomStream& stream, const Example& example) const override;
};

}  // namespace tapeformer
