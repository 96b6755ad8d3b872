// The copy task of "Transformers are RNNs", section 4.1.1: s1 .. sn 0 s1 .. sn, then zeros; n is uniform
// between max_length / 4 and (max_length - 4) / 2 (32 to 62 for 128), the symbols s are uniform from 1 up, 0
// is the separator. The predictions that count are those at positions n - 1 to 2n - 1: the separator and the
// copy. Every example is a pure function of (seed, split, index), so nothing is stored; any thread.
#pragma once

#include "core/rng.h"
#include "data/dataset.h"

namespace tapeformer {

struct CopyTaskOptions {
  std::string split = "train";  // "train", "valid" and "test" draw from streams of their own
  int64_t max_length = 128;     // predictions per example, at least 8
  int64_t symbols = 10;         // at least 1; the vocabulary is one more
  int64_t count = 0;            // examples; 0: kTrainExamples or kEvalExamples
  uint64_t seed = 0;
};

class CopyTask : public Dataset {
 public:
  // The paper's training: 10,000 updates with batches of 64, no example twice.
  static constexpr int64_t kTrainExamples = 640000;
  static constexpr int64_t kEvalExamples = 1000;

  // Throws ConfigError for options out of range.
  explicit CopyTask(const CopyTaskOptions& options);

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // tokens (batch, max_length + 1), uint8 if the symbols fit and else int64; mask (batch, max_length).
  Batch batch(std::span<const int64_t> indices) const override;

 private:
  template <class T>
  void write_example(int64_t index, T* tokens, uint8_t* mask) const;

  DatasetInfo info_;
  int64_t size_;
  int64_t symbols_;
  RandomStream stream_;
};

}  // namespace tapeformer
