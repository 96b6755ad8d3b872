// What is done to features of speech, contiguous float32 CPU tensors (frames, dims): deltas, normalisation of
// mean and variance, and SpecAugment (Park et al. 2019). Pure functions; any thread.
//
// Errors: ShapeError for tensors that do not fit.
#pragma once

#include <cstdint>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// The features with their time derivatives up to `order` appended: (frames, dims * (order + 1)). A derivative
// is the slope of a line through 2 * window + 1 frames; beyond the ends the first and last frame are
// repeated.
Tensor add_deltas(const Tensor& features, int64_t order = 2, int64_t window = 2);

// The frames of add_deltas, to the bit, of features that come in pieces: frame t when frame t + order *
// window is there. One thread.
class DeltaStream {
 public:
  explicit DeltaStream(int64_t order, int64_t window = 2);

  // The frames that these complete, perhaps none; with the last ones all that are left.
  Tensor push(const Tensor& features, bool last = false);

 private:
  std::vector<std::vector<float>> filters_;  // by order
  std::vector<float> held_;                  // frames from number first_ on
  int64_t dims_ = 0, first_ = 0, next_ = 0;
};

// Sums over frames, from which mean and variance follow. Kept in float64: sums of a corpus are long.
struct FeatureStatistics {
  double frames = 0;
  std::vector<double> sums, squares;  // (dims)

  void add(const Tensor& features);
  void add(const FeatureStatistics& other);
  bool operator==(const FeatureStatistics&) const = default;
};

// Subtracts the mean and, if wanted, divides by the standard deviation, in place. The statistics are those of
// the utterance itself, its speaker or the training set. A constant dimension becomes 0.
void normalize(const Tensor& features, const FeatureStatistics& statistics, bool variance);

// The first frame with a value that is not finite, which would spread over a whole model; -1: none.
int64_t find_not_finite(const Tensor& features);

struct SpecAugmentOptions {
  int64_t frequency_masks = 2, frequency_width = 27;  // each of 0 to frequency_width bins
  int64_t time_masks = 2, time_width = 100;           // each of 0 to time_width frames ...
  double time_share = 1;                              // ... and at most this share of the utterance
  bool operator==(const SpecAugmentOptions&) const = default;
};

// Sets bands of bins and stretches of frames to 0, the mean of normalised features, in place. Deltas are
// masked with their bin: `bins` is the number of static dimensions, 0 for all.
void spec_augment(const Tensor& features, const SpecAugmentOptions& options, const RandomStream& stream,
                  int64_t bins = 0);

}  // namespace tapeformer
