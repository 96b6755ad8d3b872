// Log-mel filterbank features as in Kaldi (Povey et al. 2011, "The Kaldi speech recognition toolkit").
//
// The constructor of Filterbank throws ConfigError for invalid options.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/random/rng.h"
#include "core/tensor.h"

namespace tapeformer {

struct FilterbankOptions {
  int64_t rate = 16000;  // samples per second
  double frame_ms = 25;  // length of a frame in milliseconds
  double shift_ms = 10;  // milliseconds between the starts of frames
  int64_t bins = 40;     // number of mel filters
  double low_hz = 20;    // lower edge of the first filter
  double high_hz = 0;    // upper edge of the last filter; if not positive, rate / 2 + high_hz
  double preemphasis = 0.97;
  double dither = 0;  // standard deviation of noise, in units of 16-bit samples
  // If true, only frames that lie completely inside the signal are computed. If false, frames whose centre
  // lies inside the signal are computed, and the signal is mirrored at its ends.
  bool snip_edges = true;
  // If true, each frame has an additional first feature, the log energy of the frame before pre-emphasis.
  bool use_energy = false;

  int64_t frame_length() const;  // returns the length in samples
  int64_t frame_shift() const;
  int64_t dims() const { return bins + (use_energy ? 1 : 0); }
  bool operator==(const FilterbankOptions&) const = default;
};

// A log-mel filterbank with a precomputed window and filters. Thread-safe.
class Filterbank {
 public:
  explicit Filterbank(const FilterbankOptions& options);
  Filterbank(Filterbank&&) noexcept;
  Filterbank& operator=(Filterbank&&) noexcept;
  ~Filterbank();

  const FilterbankOptions& options() const { return options_; }
  // Returns the number of frames of a signal. With snip_edges, returns 0 for signals that are shorter than a
  // frame. Without snip_edges, returns 0 for signals that are shorter than half of frame_shift().
  int64_t count_frames(int64_t sample_count) const;
  // Returns the features of a signal as a float32 CPU tensor with shape (frames, dims). The samples must be
  // in [-1, 1). The dither noise depends only on `noise` and the index of the frame.
  Tensor compute(std::span<const float> samples, const RandomStream& noise = {}) const;

 private:
  friend class FilterbankStream;
  struct Tables;
  // The samples [first, count) of a signal of `count` samples. `samples` points to sample `first`.
  struct Signal {
    const float* samples;
    int64_t first, count;
  };
  // Returns the index of the first sample of a frame. The index is negative if the frame begins before the
  // signal.
  int64_t find_first_sample(int64_t frame) const;
  Tensor compute_frames(const Signal& signal, int64_t begin, int64_t end, const RandomStream& noise) const;

  FilterbankOptions options_;
  std::unique_ptr<const Tables> tables_;
};

// A Filterbank for a signal that arrives in pieces. The frames are bit-identical to the frames of
// Filterbank::compute(). A FilterbankStream buffers about two frames of samples. Not thread-safe.
class FilterbankStream {
 public:
  // The filterbank must outlive the stream.
  explicit FilterbankStream(const Filterbank& filterbank, const RandomStream& noise = {});

  // Appends samples. Returns the frames that become complete, (frames, dims). The result may be empty.
  Tensor push(std::span<const float> samples);
  // Returns the frames that push() has not returned, (frames, dims). Must be called after the last samples.
  Tensor finish();
  // Returns the number of samples that were added so far.
  int64_t sample_count() const { return buffer_start_ + static_cast<int64_t>(buffer_.size()); }

 private:
  Tensor compute_until(int64_t end);

  const Filterbank& filterbank_;
  RandomStream noise_;
  std::vector<float> buffer_;  // samples from index buffer_start_
  int64_t buffer_start_ = 0;
  int64_t next_frame_ = 0;  // index of the next frame
};

}  // namespace tapeformer
