// Data sets. A data set is a list of examples, which are read as batches of CPU tensors. A Dataset is
// immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/batch.h"

namespace tapeformer {

class Tokenizer;

struct DatasetInfo {
  std::string name, split;
  int64_t vocabulary = 0;                       // tokens are in [0, vocabulary)
  int64_t length = 0;                           // tokens or vectors of a padded example, minus 1
  int64_t height = 0, width = 0, channels = 0;  // 0 if the examples are not images
  int64_t feature_count = 0;                    // size of each vector in a set; 0 for sequences of tokens

  bool operator==(const DatasetInfo&) const = default;
};

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // Returns in how many examples each token of a text is a target. The number exceeds 1 if the examples are
  // overlapping windows. Training then draws the examples at random, and an epoch has size() /
  // examples_per_token() examples.
  virtual int64_t examples_per_token() const { return 1; }
  // Returns the tokenizer of texts (data/text/tokenizer.h), or nullptr.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // Returns the examples with these indices, in this order. `tokens` is (count, length + 1), where count is
  // the number of indices. For sets of vectors, `elements` (count, length + 1, feature_count) is defined
  // instead. The data set determines which of the other tensors of the batch are defined. Throws
  // ShapeError if an index is outside [0, size()).
  virtual Batch batch(std::span<const int64_t> indices) const = 0;

 protected:
  // Throws ShapeError if an index is outside [0, size).
  void check_indices(std::span<const int64_t> indices) const;
};

}  // namespace tapeformer
