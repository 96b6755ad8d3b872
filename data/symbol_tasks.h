// Synthetic sequences of symbols. Examples are generated when they are read. An example depends only on the
// options, the split and the index of the example. All classes are thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/random/rng.h"
#include "data/batches/dataset.h"

namespace tapeformer {

struct SymbolTaskOptions {
  std::string split = "train";  // "train", "valid" and "test" use separate random streams
  // Number of predicted tokens in each example, at least SymbolTask::kMinLength. All examples have max_length
  // + 1 tokens, because the first token is not predicted.
  int64_t max_length = 128;
  // Number of different symbols, at least 1. The vocabulary consists of these symbols and the separator 0.
  int64_t symbols = 10;
  int64_t example_count = 0;  // number of examples; 0: kTrainExampleCount or kEvalExampleCount
  uint64_t seed = 0;
  // Like max_length, for the split "test"; 0: max_length.
  int64_t test_length = 0;
};

// Returns the lengths that are out of range, with their problems. If `has_halves` is true, lengths must be
// even. Checks all splits.
std::vector<std::pair<std::string, std::string>> find_length_problems(const SymbolTaskOptions& options,
                                                                      bool has_halves);

// Base class of the tasks in this file and in data/recall_tasks.h. Symbols are uniformly distributed in [1,
// symbols]; 0 is the separator.
class SymbolTask : public Dataset {
 public:
  // Default numbers of examples. 640,000 examples are 10,000 steps with batches of 64.
  static constexpr int64_t kTrainExampleCount = 640000;
  static constexpr int64_t kEvalExampleCount = 1000;
  static constexpr int64_t kMinLength = 8;

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // Returns tokens (batch, length + 1), a uint8 mask (batch, length) and, if has_token_targets() is true,
  // token_targets (batch, length). The tokens are uint8 if the vocabulary has at most 256 tokens, otherwise
  // int64.
  Batch batch(std::span<const int64_t> indices) const override;

 protected:
  // The arrays of an example: `tokens` has info().length + 1 elements, and `mask` and `targets` have
  // info().length elements. `targets` is null unless has_token_targets() is true.
  struct Example {
    int64_t* tokens;
    uint8_t* mask;
    int64_t* targets;
  };

  // Throws ConfigError for options that are out of range.
  SymbolTask(const std::string& name, const SymbolTaskOptions& options, bool has_halves = false);

  // Returns a random symbol. `draw` is the index of the random number in the stream.
  uint64_t draw_symbol(const RandomStream& stream, int64_t draw) const {
    return 1 + stream.uniform_below(static_cast<uint64_t>(draw), static_cast<uint64_t>(symbol_count_));
  }

 private:
  // Writes an example to arrays whose elements are zero.
  virtual void write_example(const RandomStream& stream, const Example& example) const = 0;
  // Whether the targets differ from the next tokens.
  virtual bool has_token_targets() const { return false; }

  DatasetInfo info_;
  int64_t size_;
  int64_t symbol_count_;
  RandomStream stream_;
};

// The copy task of "Transformers are RNNs" (Katharopoulos et al. 2020), section 4.1.1. A sequence contains n
// random symbols, the separator 0, the same n symbols, and zeros up to the end. The loss uses only the
// predictions of the separator and of the repeated symbols.
//
// The number n is uniformly distributed between max_length / 4 and (max_length - 1) / 2 - 1. For example, n
// is between 32 and 62 if max_length is 128.
class CopyTask final : public SymbolTask {
 public:
  explicit CopyTask(const SymbolTaskOptions& options) : SymbolTask("copy", options) {}

 private:
  void write_example(const RandomStream& stream, const Example& example) const override;
};

// The duplication task of "Reformer" (Kitaev et al. 2020), section 5. A sequence has the form 0 w 0 w 0,
// where w contains max_length / 2 - 1 random symbols. The loss uses only the predictions of the symbols of
// the second w. Throws ConfigError for odd lengths.
class DuplicationTask final : public SymbolTask {
 public:
  explicit DuplicationTask(const SymbolTaskOptions& options) : SymbolTask("duplication", options, true) {}

 private:
  void write_example(const RandomStream& stream, const Example& example) const override;
};

}  // namespace tapeformer
