#include "data/audio/resample.h"

#include <samplerate.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

constexpr int64_t kMaxRate = 1 << 20;

}  // namespace

struct Resampler::State {
  std::unique_ptr<SRC_STATE, SRC_STATE* (*)(SRC_STATE*)> converter;
  std::array<float, 4096> block;
};

Resampler::Resampler(int64_t input_rate, int64_t output_rate)
    : input_rate_(input_rate), output_rate_(output_rate) {
  if (input_rate < 1 || output_rate < 1 || input_rate > kMaxRate || output_rate > kMaxRate)
    throw DataError(
        concat_text("cannot resample from ", input_rate, " to ", output_rate, " samples per second"));
  if (input_rate == output_rate) return;
  int error = 0;
  state_ = std::make_unique<State>(State{{src_new(SRC_SINC_MEDIUM_QUALITY, 1, &error), src_delete}, {}});
  if (!state_->converter)
    throw DataError(
        concat_text("cannot resample from ", input_rate, " to ", output_rate, ": ", src_strerror(error)));
}
Resampler::~Resampler() = default;
Resampler::Resampler(Resampler&&) noexcept = default;

void Resampler::push(std::span<const float> samples, std::vector<float>& out) {
  input_count_ += static_cast<int64_t>(samples.size());
  if (state_)
    convert(samples, false, out);
  else
    out.insert(out.end(), samples.begin(), samples.end());
}

void Resampler::finish(std::vector<float>& out) {
  if (!state_ || input_count_ == 0) return;
  convert({}, true, out);
  // libsamplerate sometimes returns a few samples more or fewer than `count`. The result is then truncated or
  // padded with zeros.
  const double ratio = static_cast<double>(output_rate_) / static_cast<double>(input_rate_);
  const int64_t count = std::max<int64_t>(1, std::llround(static_cast<double>(input_count_) * ratio));
  const int64_t size = static_cast<int64_t>(out.size()) + count - output_count_;
  out.resize(static_cast<size_t>(std::max<int64_t>(0, size)), 0.0f);
}

void Resampler::convert(std::span<const float> samples, bool is_last, std::vector<float>& out) {
  SRC_DATA data{};
  data.src_ratio = static_cast<double>(output_rate_) / static_cast<double>(input_rate_);
  data.end_of_input = is_last;
  const float unused = 0;  // data_in must not be null
  data.data_in = samples.empty() ? &unused : samples.data();
  data.input_frames = static_cast<long>(samples.size());
  data.data_out = state_->block.data();
  data.output_frames = static_cast<long>(state_->block.size());
  do {
    if (const int error = src_process(state_->converter.get(), &data))
      throw DataError(
          concat_text("cannot resample from ", input_rate_, " to ", output_rate_, ": ", src_strerror(error)));
    out.insert(out.end(), state_->block.begin(), state_->block.begin() + data.output_frames_gen);
    output_count_ += data.output_frames_gen;
    data.data_in += data.input_frames_used;
    data.input_frames -= data.input_frames_used;
  } while (data.input_frames > 0 || data.output_frames_gen == data.output_frames);
}

std::vector<float> resample(std::span<const float> samples, int64_t input_rate, int64_t output_rate) {
  std::vector<float> result;
  Resampler resampler(input_rate, output_rate);
  resampler.push(samples, result);
  resampler.finish(result);
  return result;
}

}  // namespace tapeformer
