// Readers of recordings in WAV, AU, FLAC, Ogg and NIST SPHERE files. The format is detected by the contents,
// not by the name. All functions are thread-safe.
//
// Functions throw DataError with the path if the file is missing, is not audio, has an unsupported container
// or compression, or is truncated. Functions that read samples also throw DataError if the recording has no
// samples, exceeds the maximum length, or has several channels and AudioOptions::channel is not set. If
// AudioOptions::resample is false, they throw DataError if the rate of the recording differs from the
// requested rate.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/audio/resample.h"

namespace tapeformer {

struct AudioInfo {
  int64_t rate = 0;  // samples per second
  int64_t channel_count = 0;
  int64_t sample_count = 0;  // number of samples per channel
};

struct Audio {
  std::vector<float> samples;  // one channel, in [-1, 1)
  int64_t rate = 0;            // samples per second
};

struct AudioOptions {
  std::optional<int64_t> channel = {};  // counted from 0; required for recordings with several channels
  int64_t rate = 0;                     // requested samples per second; 0: the rate of the file
  // If true, recordings whose rate differs from `rate` are resampled to `rate`. If false, reading such a
  // recording throws DataError. Has no effect if `rate` is 0.
  bool resample = false;
  int64_t first_sample = 0;  // first sample to read, at the rate of the file
  std::optional<int64_t> end_sample =
      {};                  // index after the last sample to read; std::nullopt: end of the file
  double max_seconds = 0;  // maximum length after `first_sample`; 0: no limit
};

// Returns the rate, the number of channels and the number of samples of a recording. If the header does not
// contain the number of samples, as in a FLAC file that was written to a pipe, the function counts the
// samples. If `max_seconds` is positive, the function stops counting after `max_seconds` of audio.
AudioInfo read_audio_info(const std::filesystem::path& path, double max_seconds = 0);

// Returns the samples of a recording. Throws DataError if the recording is longer than options.max_seconds.
// Decoding stops at this limit, so memory is bounded even if the header is wrong.
Audio read_audio(const std::filesystem::path& path, const AudioOptions& options = {});

// A file descriptor from which AudioStream reads a WAV file or samples without a header. The header of the
// WAV file does not need to contain the length. AudioStream does not close the descriptor.
struct AudioPipe {
  int descriptor = 0;
  // If true, the descriptor provides little-endian 16-bit samples of one channel without a header, with
  // AudioOptions::rate samples per second. If false, the descriptor provides a WAV file.
  bool is_raw = false;
  std::string name = "standard input";
};

class SoundFile;

// A reader that returns a recording in blocks of 20 ms, so that the memory use does not grow with the length
// of the recording. The blocks contain the same samples as the result of read_audio(). Not thread-safe.
class AudioStream {
 public:
  AudioStream(const std::filesystem::path& path, const AudioOptions& options);
  AudioStream(const AudioPipe& pipe, const AudioOptions& options);
  ~AudioStream();

  int64_t rate() const { return rate_; }
  // Returns the next block of samples, or an empty span at the end of the recording. The span is valid until
  // the next call. If the source is a pipe, waits for the pipe to provide samples.
  std::span<const float> next();

 private:
  void start();
  void check_limit(int64_t samples) const;

  std::string name_;
  AudioOptions options_;
  std::unique_ptr<SoundFile> sound_;
  std::optional<Resampler> resampler_;
  std::vector<float> frames_;   // samples of a block, with interleaved channels
  std::vector<float> samples_;  // returned block: one channel at the rate `rate_`
  int64_t rate_ = 0, position_ = 0, last_ = 0;
  bool has_ended_ = false;
};

// Writes a WAV file with one channel of 16-bit samples. Clips samples to [-1, 1). Throws DataError if the
// file cannot be written.
void write_wav(const std::filesystem::path& path, std::span<const float> samples, int64_t rate);

// Returns whether all samples are equal, as in recordings of a disconnected microphone.
bool is_silent(std::span<const float> samples);

}  // namespace tapeformer
