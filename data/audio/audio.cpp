#include "data/audio/audio.h"

#include <sndfile.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "data/audio/sound_file.h"

namespace tapeformer {
namespace {

constexpr int64_t kBlocksPerSecond = 50;  // an AudioStream reads blocks of 20 ms

// Returns the number of samples in `seconds` at `rate` samples per second, rounded up. Returns INT64_MAX if
// `seconds` is 0 (no limit) or the number is too large.
int64_t convert_to_sample_count(double seconds, int64_t rate) {
  const double samples = std::ceil(seconds * static_cast<double>(rate));
  const bool limited = seconds > 0 && samples < 0x1p62;
  return limited ? static_cast<int64_t>(samples) : std::numeric_limits<int64_t>::max();
}

// Opens a recording. If the header does not contain the number of samples, counts the samples, but only up to
// the end of the range that `options` selects.
std::unique_ptr<SoundFile> open_file(const std::filesystem::path& path, const AudioOptions& options) {
  auto file = std::make_unique<SoundFile>(path);
  if (file->sample_count() != SoundFile::kUnknownCount) return file;
  const int64_t length = convert_to_sample_count(options.max_seconds, file->rate());
  int64_t end = 0;
  if (__builtin_add_overflow(options.first_sample, length, &end)) end = length;
  file->count_samples(options.end_sample.value_or(end));
  return file;
}

std::unique_ptr<SoundFile> open_pipe(const AudioPipe& pipe, int64_t rate) {
  if (pipe.is_raw && rate <= 0) throw DataError(pipe.name + ": samples without a header need a rate");
  return std::make_unique<SoundFile>(pipe.descriptor, pipe.name, pipe.is_raw ? rate : 0);
}

}  // namespace

AudioStream::AudioStream(const std::filesystem::path& path, const AudioOptions& options)
    : name_(path.string()), options_(options), sound_(open_file(path, options)) {
  start();
}

AudioStream::AudioStream(const AudioPipe& pipe, const AudioOptions& options)
    : name_(pipe.name), options_(options), sound_(open_pipe(pipe, options.rate)) {
  start();
}

AudioStream::~AudioStream() = default;

void AudioStream::start() {
  const int64_t rate = sound_->rate(), channels = sound_->channel_count(), count = sound_->sample_count();
  if (count <= 0) throw DataError(name_ + ": contains no samples");
  if (channels > 1 && !options_.channel)
    throw DataError(concat_text(name_, ": has ", channels, " channels, expected 1; ",
                                name_option("AudioOptions::channel"), " = 0 selects the first"));
  const int64_t channel = options_.channel.value_or(0);
  if (channel < 0 || channel >= channels)
    throw DataError(concat_text(name_, ": has no channel ", channel, ", found ", channels, " channels"));
  if (options_.rate > 0 && options_.rate != rate && !options_.resample)
    throw DataError(concat_text(name_, ": expected ", options_.rate, " samples per second, found ", rate,
                                "; ", name_option("AudioOptions::resample"), " = true converts it"));
  position_ = options_.first_sample;
  last_ = options_.end_sample.value_or(count);
  if (position_ < 0 || position_ >= last_ || last_ > count)
    throw DataError(concat_text(name_, ": samples ", options_.first_sample, " to ", last_,
                                " are out of range, the recording has ", count));
  if (last_ < SoundFile::kUnknownCount)
    check_limit(last_ - position_);  // throws before any sample is decoded
  sound_->skip_to(position_);
  rate_ = options_.rate > 0 ? options_.rate : rate;
  resampler_.emplace(rate, rate_);
  frames_.resize(static_cast<size_t>(std::max<int64_t>(1, rate / kBlocksPerSecond)) *
                 static_cast<size_t>(channels));
}

void AudioStream::check_limit(int64_t samples) const {
  const int64_t rate = sound_->rate();
  if (samples > convert_to_sample_count(options_.max_seconds, rate))
    throw DataError(concat_text(name_, ": is longer than the limit of ", options_.max_seconds, " s (",
                                name_option("AudioOptions::max_seconds"), ")"));
}

std::span<const float> AudioStream::next() {
  const auto channels = static_cast<size_t>(sound_->channel_count());
  samples_.clear();
  while (samples_.empty() && !has_ended_) {
    const int64_t wanted = std::min(static_cast<int64_t>(frames_.size() / channels), last_ - position_);
    const int64_t got = sound_->read(frames_.data(), wanted);
    position_ += got;
    check_limit(position_ - options_.first_sample);
    if (sound_->has_failed() || (got < wanted && last_ < SoundFile::kUnknownCount))
      throw DataError(
          concat_text(name_, ": truncated or corrupt: expected ", last_, " samples, found ", position_));
    if (got > 0 && channels > 1) {
      const auto channel = static_cast<size_t>(options_.channel.value_or(0));
      for (size_t i = 0; i < static_cast<size_t>(got); ++i) frames_[i] = frames_[i * channels + channel];
    }
    resampler_->push({frames_.data(), static_cast<size_t>(got)}, samples_);
    has_ended_ = got < wanted || position_ == last_;
    if (has_ended_) resampler_->finish(samples_);
  }
  return samples_;
}

AudioInfo read_audio_info(const std::filesystem::path& path, double max_seconds) {
  const std::unique_ptr<SoundFile> file = open_file(path, {.max_seconds = max_seconds});
  return {file->rate(), file->channel_count(), file->sample_count()};
}

Audio read_audio(const std::filesystem::path& path, const AudioOptions& options) {
  AudioStream stream(path, options);
  Audio audio{{}, stream.rate()};
  for (auto block = stream.next(); !block.empty(); block = stream.next())
    audio.samples.insert(audio.samples.end(), block.begin(), block.end());
  return audio;
}

void write_wav(const std::filesystem::path& path, std::span<const float> samples, int64_t rate) {
  SF_INFO info{};
  info.samplerate = static_cast<int>(rate);
  info.channels = 1;
  info.format = SF_FORMAT_WAV | SF_FORMAT_PCM_16;
  const std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> file(sf_open(path.c_str(), SFM_WRITE, &info), sf_close);
  if (!file) throw DataError(path.string() + ": cannot be written: " + sf_strerror(nullptr));
  std::vector<int16_t> words(samples.size());
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<int16_t>(std::clamp(std::lround(samples[i] * 32768.0f), -32768l, 32767l));
  const auto count = static_cast<sf_count_t>(words.size());
  if (sf_write_short(file.get(), words.data(), count) != count)
    throw DataError(path.string() + ": cannot be written: " + sf_strerror(file.get()));
  sf_write_sync(file.get());
}

bool is_silent(std::span<const float> samples) {
  return std::all_of(samples.begin(), samples.end(), [&](float sample) { return sample == samples.front(); });
}

}  // namespace tapeformer
