// What a model learns from: examples by index, handed out as batches of CPU tensors. A Dataset does not
// change after it is made, and any number of threads may ask it for batches.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/batch.h"

namespace tapeformer {

struct DatasetInfo {
  std::string name, split;
  int64_t vocabulary = 0;                       // tokens are 0 to vocabulary - 1
  int64_t length = 0;                           // predictions per example: one less than its tokens
  int64_t height = 0, width = 0, channels = 0;  // 0 when the examples are not images

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
  // The examples of the indices, in their order: tokens (indices, length + 1), and mask and labels where the
  // set has them. Throws ShapeError for an index outside [0, size).
  virtual Batch batch(std::span<const int64_t> indices) const = 0;

 protected:
  void check_indices(std::span<const int64_t> indices) const;
};

struct DatasetOptions {
  std::string name;             // "mnist", "fashion-mnist", "cifar10", "copy", "duplication"
  std::string split = "train";  // "train", "valid", "test"
  std::string data_dir;         // see data/directory.h
  int64_t limit = 0;            // the first so many examples; 0: all
  int64_t validation = 0;       // image sets: training examples held out as "valid", from the end
  int64_t downscale = 1;        // image sets: averages blocks of k x k pixels
  uint64_t seed = 0;            // synthetic sets
  int64_t max_length = 128;     // synthetic sets
  int64_t symbols = 10;         // synthetic sets
};

// What make_dataset will say of the set, from its name and options alone: no file is read, so a model can be
// built where the data is not. Throws ConfigError for an unknown name and a downscale that does not fit.
DatasetInfo describe_dataset(const DatasetOptions& options);

// Throws ConfigError for unknown names and options that do not fit, DataError for missing or corrupt files.
// Image sets: tokens (batch, height * width * channels) uint8, labels (batch,) int64, no mask.
std::shared_ptr<const Dataset> make_dataset(const DatasetOptions& options);

}  // namespace tapeformer
