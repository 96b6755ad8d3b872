// Features of speech as Kaldi computes them (Povey et al. 2011, "The Kaldi speech recognition toolkit"):
// log-mel filterbanks, as contiguous float32 CPU tensors (frames, dims).
//
// Errors: ConfigError for options that make no sense.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/rng.h"
#include "core/tensor.h"

namespace tapeformer {

struct FilterbankOptions {
  int64_t rate = 16000;  // samples per second
  double frame_ms = 25;  // length of a frame
  double shift_ms = 10;  // from one frame to the next
  int64_t bins = 40;     // mel triangles
  double low_hz = 20;    // lower edge of the first triangle
  double high_hz = 0;    // upper edge of the last; 0 or less: so far above (below) half the rate
  double preemphasis = 0.97;
  double dither = 0;  // standard deviation of noise, in units of 16-bit samples
  bool snip_edges =
      true;             // frames lie inside of the signal; else their centres do, and its ends are mirrored
  bool energy = false;  // the log energy of the raw frame goes before the bins

  int64_t frame_length() const;  // in samples
  int64_t frame_shift() const;
  int64_t dims() const { return bins + (energy ? 1 : 0); }
  bool operator==(const FilterbankOptions&) const = default;
};

// Made once for its options; any number of threads may use it.
class Filterbank {
 public:
  explicit Filterbank(const FilterbankOptions& options);
  Filterbank(Filterbank&&) noexcept;
  Filterbank& operator=(Filterbank&&) noexcept;
  ~Filterbank();

  const FilterbankOptions& options() const { return options_; }
  // 0 when the signal is shorter than a frame (with snip_edges) or empty.
  int64_t frames(int64_t samples) const;
  // (frames, dims) of samples in [-1, 1). Noise is drawn from the stream, number frame * frame length +
  // sample.
  Tensor compute(std::span<const float> samples, const RandomStream& noise = {}) const;

 private:
  friend class FilterbankStream;
  struct Tables;
  // Samples [first, count) of a signal; those before are not needed any more.
  struct Signal {
    const float* samples;
    int64_t first, count;
  };
  int64_t start_of(int64_t frame) const;  // its first sample; negative where it is mirrored
  Tensor frames_of(const Signal& signal, int64_t begin, int64_t end, const RandomStream& noise) const;

  FilterbankOptions options_;
  std::unique_ptr<const Tables> tables_;
};

// The frames of Filterbank::compute, to the bit, of a signal that comes in pieces. It holds about two frames
// of samples. One thread.
class FilterbankStream {
 public:
  // The filterbank must outlive the stream.
  explicit FilterbankStream(const Filterbank& filterbank, const RandomStream& noise = {});

  // The frames that these samples complete, (frames, dims); often none.
  Tensor push(std::span<const float> samples);
  // The last frames, once no more samples come.
  Tensor finish();
  int64_t samples() const { return first_ + static_cast<int64_t>(held_.size()); }  // so far

 private:
  Tensor take(int64_t end);

  const Filterbank& filterbank_;
  RandomStream noise_;
  std::vector<float> held_;  // samples from number first_ on
  int64_t first_ = 0;
  int64_t next_ = 0;  // frame
};

}  // namespace tapeformer
