// Data sets of examples with an index, which are read as batches of CPU tensors. A Dataset is immutable and
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/batch.h"

namespace tapeformer {

struct DatasetInfo {
  std::string name, split;
  int64_t vocabulary = 0;                       // tokens are in [0, vocabulary)
  int64_t length = 0;                           // predictions per example: number of tokens - 1
  int64_t height = 0, width = 0, channels = 0;  // 0 if the examples are not images

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
  // Returns the examples with these indices, in this order: tokens (indices, length + 1), and the mask and
  // labels if the data set has them. Throws ShapeError if an index is outside [0, size).
  virtual Batch batch(std::span<const int64_t> indices) const = 0;

 protected:
  // Throws ShapeError if an index is outside [0, size).
  void check_indices(std::span<const int64_t> indices) const;
};

struct DatasetOptions {
  std::string name;             // a data set of images or sequences (data/catalogue.h)
  std::string split = "train";  // "train", "valid" or "test"
  std::string data_dir;         // see data/directory.h
  int64_t limit = 0;            // maximum number of examples, from the start; 0: all

  // Images.
  int64_t validation = 0;  // number of training examples to hold out as "valid", from the end
  int64_t downscale = 1;   // side of the blocks of pixels to average

  // Synthetic sequences: see SymbolTaskOptions.
  uint64_t seed = 0;
  int64_t max_length = 128;
  int64_t symbols = 10;
};

// Returns the info of make_dataset(options) without reading files, so that a model can be built without its
// training data. Throws ConfigError for an unknown name and an invalid downscale.
DatasetInfo describe_dataset(const DatasetOptions& options);

// Returns a data set of images or of synthetic sequences. Image data sets have tokens (batch, height * width
// * channels) uint8, labels (batch,) int64 and no mask. Throws ConfigError for unknown names and invalid
// options, and DataError for missing or corrupt files.
std::shared_ptr<const Dataset> make_dataset(const DatasetOptions& options);

}  // namespace tapeformer
