// Synthetic sequences of symbols. Every example is a pure function of (seed, split, index), so nothing is
// stored; any thread.
#pragma once

#include "core/rng.h"
#include "data/dataset.h"

namespace tapeformer {

struct SymbolTaskOptions {
  std::string split = "train";  // "train", "valid" and "test" draw from streams of their own
  int64_t max_length = 128;     // predictions per example, at least 8
  int64_t symbols = 10;         // at least 1; the vocabulary is one more
  int64_t count = 0;            // examples; 0: kTrainExamples or kEvalExamples
  uint64_t seed = 0;
};

// Symbols are uniform from 1 up; 0 separates.
class SymbolTask : public Dataset {
 public:
  // The copy task's 10,000 steps with batches of 64, no example twice; longer trainings ask for more.
  static constexpr int64_t kTrainExamples = 640000;
  static constexpr int64_t kEvalExamples = 1000;

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // tokens (batch, max_length + 1), uint8 if the symbols fit and else int64; mask (batch, max_length).
  Batch batch(std::span<const int64_t> indices) const override;

 protected:
  // Throws ConfigError for options out of range.
  SymbolTask(const std::string& name, const SymbolTaskOptions& options);

  uint64_t symbol(const RandomStream& stream, int64_t draw) const {
    return 1 + stream.below(static_cast<uint64_t>(draw), static_cast<uint64_t>(symbols_));
  }

 private:
  // One example into info().length + 1 tokens and info().length mask values, all zero before.
  virtual void write_example(const RandomStream& stream, int64_t* tokens, uint8_t* mask) const = 0;

  DatasetInfo info_;
  int64_t size_;
  int64_t symbols_;
  RandomStream stream_;
};

// The copy task of "Transformers are RNNs", section 4.1.1: s1 .. sn 0 s1 .. sn, then zeros; n is uniform
// between max_length / 4 and (max_length - 1) / 2 - 1 (32 to 62 for 128). The loss covers the
// predictions at positions n - 1 to 2n - 1: the separator and the copy.
class CopyTask final : public SymbolTask {
 public:
  explicit CopyTask(const SymbolTaskOptions& options) : SymbolTask("copy", options) {}

 private:
  void write_example(const RandomStream& stream, int64_t* tokens, uint8_t* mask) const override;
};

// The duplication task of "Reformer", section 5: 0 w 0 w with w of max_length / 2 - 1 symbols, and a closing
// 0 that is not counted, so that the model sees max_length tokens. The predictions that count are those of
// the second w. Throws ConfigError for an odd max_length.
class DuplicationTask final : public SymbolTask {
 public:
  explicit DuplicationTask(const SymbolTaskOptions& options);

 private:
  void write_example(const RandomStream& stream, int64_t* tokens, uint8_t* mask) const override;
};

}  // namespace tapeformer
