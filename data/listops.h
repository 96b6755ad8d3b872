// ListOps (Nangia and Bowman 2018) as in the Long Range Arena (Tay et al. 2020, section 2.2.1). A sequence
// contains nested operations on digits, such as "[MAX 4 [MIN 2 7 ] 0 ]". The label of a sequence is the
// result of the expression. Examples are generated when they are read. An example depends only on the
// options, the split and the index of the example.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/random/rng.h"
#include "data/batches/dataset.h"

namespace tapeformer {

struct ListOpsOptions {
  std::string split = "train";  // "train", "valid" and "test" use separate random streams
  // Minimum and maximum number of tokens in a sequence. If min_length is 0, the minimum is max_length / 4.
  // The Long Range Arena uses sequences of 500 to 2,000 tokens.
  int64_t min_length = 0, max_length = 2000;
  int64_t max_depth = 10;     // maximum number of nested levels; operands on the last level are digits
  int64_t max_args = 10;      // maximum number of operands of an operation, at least 2
  int64_t example_count = 0;  // number of examples; 0: kTrainExampleCount or kEvalExampleCount
  uint64_t seed = 0;
};

// An expression with its result.
struct ListOpsExample {
  std::vector<uint8_t> tokens;
  int64_t value = 0;  // 0 to 9
};

class ListOps final : public Dataset {
 public:
  static constexpr int64_t kTrainExampleCount = 96000,
                           kEvalExampleCount = 2000;  // as in the Long Range Arena
  static constexpr int64_t kClassCount = 10;
  // The texts of the tokens. Token 0 pads sequences.
  static constexpr std::array<const char*, 16> kTokenStrings{
      "", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "[MIN", "[MAX", "[MED", "[SM", "]"};

  // Throws ConfigError if an option is out of range or if generate_example(0) finds no expression.
  explicit ListOps(const ListOpsOptions& options);

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // Returns a batch with tokens, lengths and labels. `tokens` is uint8 (batch, max_length), and shorter
  // sequences are padded with 0. `lengths` and `labels` are int64 (batch,).
  Batch batch(std::span<const int64_t> indices) const override;
  // Returns an example. Throws ConfigError if none of a million random expressions has between min_length and
  // max_length tokens.
  ListOpsExample generate_example(int64_t index) const;

 private:
  ListOpsOptions options_;
  DatasetInfo info_;
  int64_t size_;
  RandomStream stream_;
};

}  // namespace tapeformer
