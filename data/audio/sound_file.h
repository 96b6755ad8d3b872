// Decoding of recordings with libsndfile. Internal to data/audio.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "data/audio/sound_bytes.h"

namespace tapeformer {

// A recording whose samples are read from the start to the end. Not thread-safe.
class SoundFile {
 public:
  static constexpr int64_t kUnknownCount = INT64_MAX;

  // Opens a file. Throws DataError as described in data/audio/audio.h.
  explicit SoundFile(const std::filesystem::path& path);
  // Opens a pipe. If `raw_rate` is 0, the pipe provides a WAV. Otherwise, it provides little-endian 16-bit
  // samples of one channel without a header, with `raw_rate` samples per second. Does not close the
  // descriptor.
  SoundFile(int descriptor, const std::string& name, int64_t raw_rate);
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;
  ~SoundFile();

  int64_t rate() const { return rate_; }
  int64_t channel_count() const { return channel_count_; }
  // Returns the number of samples per channel. Returns kUnknownCount if the header does not contain this
  // number, and the source is a pipe or a FLAC or Ogg file.
  int64_t sample_count() const { return sample_count_; }
  // Sets sample_count() of a file by decoding the file. Stops when the number exceeds `limit`.
  void count_samples(int64_t limit);
  // Moves from the start to the sample `position`. Decodes the samples before `position` if libsndfile cannot
  // move to `position`, as in GSM 6.10, G.721 and NMS ADPCM recordings.
  void skip_to(int64_t position);
  // Reads up to `count` samples of all channels. Returns the number of samples per channel, which is less
  // than `count` only at the end or after an error.
  int64_t read(float* samples, int64_t count);
  // Returns whether a call of read() has failed, or has reached the end of a pipe too early.
  bool has_failed() const;

 private:
  struct Callbacks;
  struct Decoder;  // owner of an SNDFILE
  // Opens the decoder at the start of the recording. Returns SF_INFO::format.
  int open(int64_t raw_rate = 0);
  // Decodes up to `count` samples per channel. Returns the number of samples.
  int64_t decode(int64_t count);

  SoundBytes bytes_;
  int64_t length_ = 0, position_ = 0;  // in bytes
  int64_t rate_ = 0, channel_count_ = 0, sample_count_ = 0;
  std::unique_ptr<Decoder> decoder_;
};

}  // namespace tapeformer
