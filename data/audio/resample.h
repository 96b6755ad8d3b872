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

// Returns the signal at the rate `to`, with round(samples * to / from) samples, and at least one sample for a
// signal that is not empty.
std::vector<float> resample(std::span<const float> samples, int64_t from, int64_t to);

// A converter of a signal that arrives in pieces. Returns the same samples as resample().
class Resampler {
 public:
  Resampler(int64_t from, int64_t to);
  ~Resampler();
  Resampler(Resampler&&) noexcept;

  // Converts input samples. Appends the output samples that can already be computed to `out`.
  void push(std::span<const float> samples, std::vector<float>& out);
  // Ends the signal: appends the remaining output samples, or removes surplus samples from the end of `out`.
  void finish(std::vector<float>& out);

 private:
  struct State;
  void convert(std::span<const float> samples, bool last, std::vector<float>& out);

  int64_t from_, to_;
  int64_t input_count_ = 0, output_count_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace tapeformer
