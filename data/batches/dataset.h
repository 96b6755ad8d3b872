// The interface of data sets. A data set is a list of examples. The examples are read in batches of CPU
// tensors. A Dataset is immutable and thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"

namespace tapeformer {

class Tokenizer;

struct DatasetInfo {
  std::string name = {}, split = {};
  int64_t vocabulary = 0;  // tokens are in [0, vocabulary)
  // Each example in a batch has length + 1 tokens or vectors, including padding. A language model predicts
  // `length` of these tokens, because it does not predict the first token.
  int64_t length = 0;
  int64_t height = 0, width = 0, channels = 0;  // 0 if the examples are not images
  int64_t feature_count = 0;                    // size of each vector in a set; 0 for sequences of tokens
  int64_t longest_split_length = 0;             // largest `length` of a split; 0: all splits are equally long

  // Returns the number of positions that a model of all splits needs.
  int64_t model_length() const { return longest_split_length > 0 ? longest_split_length : length; }

  bool operator==(const DatasetInfo&) const = default;
};

// The place of a batch in a training. Both numbers are counted from the start.
struct BatchPlace {
  int64_t number = 0, epoch = 0;
};

// Throws ConfigError unless `split` is "train", "valid" or "test".
void require_split(const std::string& split);

class Dataset {
 public:
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;
  virtual ~Dataset() = default;

  virtual const DatasetInfo& info() const = 0;
  virtual int64_t size() const = 0;
  // Returns the number of examples in which each token of a text is a target. The result is greater than 1 if
  // the examples are overlapping windows.
  //
  // If the result is greater than 1 and LoaderOptions::shuffle is true, a Loader draws the examples of each
  // batch at random. An epoch then has about size() / examples_per_token() examples, and each token is a
  // target about once per epoch on average.
  virtual int64_t examples_per_token() const { return 1; }
  // Returns the length of each example, by which a Loader puts examples of similar length into a batch. Empty
  // if all examples are equally long.
  virtual std::vector<int64_t> lengths() const { return {}; }
  // If the examples are texts, returns the tokenizer of the texts (data/text/tokenizer.h). Otherwise returns
  // nullptr.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return nullptr; }
  // Returns the examples with the given indices, in the given order. In the following shapes, `count` is the
  // number of indices. If the examples are sets of vectors, `elements` has the shape
  // (count, length + 1, feature_count). Otherwise, `tokens` has the shape (count, length + 1). The class of
  // the data set documents which other tensors of the batch are defined. Throws ShapeError if an index is
  // outside [0, size()).
  virtual Batch batch(std::span<const int64_t> indices) const = 0;
  // Returns the examples for a training, in which a data set may change them at random.
  virtual Batch training_batch(std::span<const int64_t> indices, const BatchPlace& /*place*/) const {
    return batch(indices);
  }
  // Returns the index or the name of an example, for error messages.
  virtual std::string describe_example(int64_t index) const { return std::to_string(index); }
  // Returns a text with the size, the name and the split of the data set, and a checksum of a part of its
  // contents.
  virtual std::string compute_digest() const;

 protected:
  // Throws ShapeError if an index is outside [0, size).
  void check_indices(std::span<const int64_t> indices) const;
};

}  // namespace tapeformer
