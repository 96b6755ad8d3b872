// Processing of speech features: deltas, normalisation of mean and variance, and SpecAugment (Park et al.
// 2019). Features are contiguous float32 CPU tensors with shape (frames, dims). All functions are
// thread-safe.
//
// Functions throw ShapeError for tensors with another rank or dtype, for tensors that are not contiguous, and
// for mismatched shapes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// Returns the features with their time derivatives up to `order`, (frames, dims * (order + 1)). The first
// derivative is the slope of the least-squares line through 2 * window + 1 frames. Higher derivatives apply
// the filter of the first derivative repeatedly. The features are padded with copies of the first frame
// before the start and copies of the last frame after the end.
Tensor add_deltas(const Tensor& features, int64_t order = 2, int64_t window = 2);

// The streaming form of add_deltas(), for features that arrive in pieces. The results are bit-identical to
// the results of add_deltas(). Frame t is returned after frame t + order * window has been pushed. Not
// thread-safe.
class DeltaStream {
 public:
  explicit DeltaStream(int64_t order, int64_t window = 2);

  // Appends features. Returns the frames whose deltas can now be computed; the result may be empty. If
  // `is_last` is true, returns all remaining frames.
  Tensor push(const Tensor& features, bool is_last = false);

 private:
  std::vector<std::vector<float>> filters_;  // filters of the derivatives, indexed by order
  std::vector<float> buffer_;                // values of the pushed frames, starting with frame first_
  int64_t dims_ = 0, first_ = 0, next_ = 0;
};

// Sums over frames from which the mean and the variance of the features are computed. The sums are float64,
// because a float32 sum over the many frames of a corpus would be inaccurate.
struct FeatureStatistics {
  double frame_count = 0;
  std::vector<double> sums, square_sums;  // (dims)

  void add(const Tensor& features);
  void add(const FeatureStatistics& other);
  bool operator==(const FeatureStatistics&) const = default;
};

// Subtracts the mean of `statistics` from the features in place. If `normalize_variance` is true, also
// divides each dimension by its standard deviation. If `normalize_variance` is true, dimensions with a
// variance below 1e-10 are set to 0.
void normalize_features(const Tensor& features, const FeatureStatistics& statistics, bool normalize_variance);

// Returns the index of the first frame with a value that is not finite, or -1 if there is none.
int64_t find_non_finite_frame(const Tensor& features);

struct SpecAugmentOptions {
  int64_t frequency_masks = 2;
  int64_t frequency_width = 27;  // maximum number of bins in a mask
  int64_t time_masks = 2;
  int64_t time_width = 100;  // maximum number of frames in a mask
  double time_share = 1;     // maximum share of the frames of an utterance in a mask
  bool operator==(const SpecAugmentOptions&) const = default;
};

// Masks random bands of bins and random spans of frames in place. Masked values and the deltas of masked bins
// are set to 0, which is the mean of normalised features. `bins` is the number of dimensions without deltas,
// or 0 if the features have no deltas.
void apply_spec_augment(const Tensor& features, const SpecAugmentOptions& options, const RandomStream& stream,
                        int64_t bins = 0);

}  // namespace tapeformer
