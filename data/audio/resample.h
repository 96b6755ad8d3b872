// Conversion of sample rates by band-limited interpolation (libsamplerate). resample() is thread-safe; a
// Resampler is not.
//
// resample() and the constructor of Resampler throw DataError for unsupported rates.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tapeformer {

// Returns the signal at the rate `output_rate`. The result has
// round(samples.size() * output_rate / input_rate) samples. If `samples` is not empty, the result has at
// least one sample.
std::vector<float> resample(std::span<const float> samples, int64_t input_rate, int64_t output_rate);

// A converter that resamples a signal in pieces. The result is equal to the result of resample() for the
// whole signal.
class Resampler {
 public:
  Resampler(int64_t input_rate, int64_t output_rate);
  ~Resampler();
  Resampler(Resampler&&) noexcept;

  // Converts input samples. Appends the output samples that can already be computed to `out`.
  void push(std::span<const float> samples, std::vector<float>& out);
  // Appends the remaining output samples to `out`. Then truncates `out` or pads it with zeros, so that the
  // total number of output samples is the same as with resample(). Must be called once, after the last
  // push().
  void finish(std::vector<float>& out);

 private:
  struct State;
  void convert(std::span<const float> samples, bool is_last, std::vector<float>& out);

  int64_t input_rate_, output_rate_;
  int64_t input_count_ = 0, output_count_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace tapeformer
