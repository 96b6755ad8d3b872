// Synthetic sets of vectors from "Set Transformer" (Lee et al. 2019). Examples are generated when they are
// read. An example depends only on the options, the split and the index of the example. All classes are
// thread-safe.
#pragma once

#include <string>

#include "core/random/rng.h"
#include "data/batches/dataset.h"

namespace tapeformer {

struct SetTaskOptions {
  std::string split = "train";  // "train", "valid" and "test" use separate random streams
  // Smallest and largest number of elements in a set. The number of elements is uniformly distributed. If
  // min_length is 0, the smallest number is a quarter of max_length.
  int64_t min_length = 0, max_length = 10;
  int64_t components = 4;     // number of Gaussians in a mixture; only for SetMixtureTask
  int64_t example_count = 0;  // number of examples; 0: kTrainExampleCount or kEvalExampleCount
  uint64_t seed = 0;
};

// Base class of the tasks in this file.
class SetTask : public Dataset {
 public:
  static constexpr int64_t kTrainExampleCount = 1'000'000, kEvalExampleCount = 2000;

  const DatasetInfo& info() const override { return info_; }
  int64_t size() const override { return size_; }
  // Returns a batch with `elements`, `lengths` and `targets`. `elements` has the shape
  // (batch, max_length, features) and contains zeros after the last element of each set.
  Batch batch(std::span<const int64_t> indices) const override;

 protected:
  // Throws ConfigError for options that are out of range.
  SetTask(const std::string& name, int64_t features, const SetTaskOptions& options);

  // A random number generator for one example. Each call returns the next number of the random stream.
  class RandomNumberGenerator {
   public:
    explicit RandomNumberGenerator(const RandomStream& stream) : stream_(stream) {}
    double uniform() { return stream_.uniform(next_number_++); }
    double normal() { return stream_.normal(next_number_++); }
    int64_t uniform_below(int64_t n) {
      return static_cast<int64_t>(stream_.uniform_below(next_number_++, static_cast<uint64_t>(n)));
    }

   private:
    RandomStream stream_;
    uint64_t next_number_ = 0;
  };

 private:
  // Writes `length` elements of an example to `elements`. Returns the target of the example.
  virtual double write_example(RandomNumberGenerator& generator, int64_t length, float* elements) const = 0;

  DatasetInfo info_;
  int64_t min_length_, size_;
  RandomStream stream_;
};

// Sets of numbers that are uniformly distributed in (0, 1). The target is the maximum. In section 5.1 of the
// paper, the numbers and the target are 100 times as large.
class SetMaximumTask final : public SetTask {
 public:
  explicit SetMaximumTask(const SetTaskOptions& options) : SetTask("set-maximum", 1, options) {}

 private:
  double write_example(RandomNumberGenerator& generator, int64_t length, float* elements) const override;
};

// Sets of points in the plane, drawn from a mixture of Gaussians (section 5.3 of "Set Transformer"). The
// weights of the Gaussians have a Dirichlet distribution with parameter 1. The coordinates of the means of
// the Gaussians are uniformly distributed in [-4, 4], and the standard deviation of each Gaussian is 0.3.
// The target is the mean log-likelihood of the points under the mixture.
class SetMixtureTask final : public SetTask {
 public:
  static constexpr int64_t kFeatures = 2;

  explicit SetMixtureTask(const SetTaskOptions& options);

 private:
  double write_example(RandomNumberGenerator& generator, int64_t length, float* elements) const override;

  int64_t components_;
};

}  // namespace tapeformer
