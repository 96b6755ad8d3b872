// Samples at another rate, by band-limited interpolation (libsamplerate). Any thread, one at a time for each
// Resampler.
//
// Errors: DataError for rates that cannot be.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tapeformer {

// round(samples * to / from) samples, at least one where there was one.
std::vector<float> resample(std::span<const float> samples, int64_t from, int64_t to);

// The samples of resample(), of a signal that comes in pieces.
class Resampler {
 public:
  Resampler(int64_t from, int64_t to);
  ~Resampler();
  Resampler(Resampler&&) noexcept;

  // Appends what these samples complete.
  void push(std::span<const float> samples, std::vector<float>& out);
  // Appends the last samples, once no more come.
  void finish(std::vector<float>& out);

 private:
  struct State;
  void convert(std::span<const float> samples, bool last, std::vector<float>& out);

  int64_t from_, to_;
  int64_t taken_ = 0, given_ = 0;
  std::unique_ptr<State> state_;
};

}  // namespace tapeformer
