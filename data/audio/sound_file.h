// Decoding of recordings with libsndfile. Internal to data/audio.
#pragma once

#include <sndfile.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "data/audio/audio.h"
#include "data/audio/sound_bytes.h"

namespace tapeformer {

// A recording whose samples are read from the start to the end. Not thread-safe.
class SoundFile {
 public:
  // Opens a file. Throws DataError as described in data/audio/audio.h.
  explicit SoundFile(const std::filesystem::path& path);
  // Opens a pipe that provides a WAV file, or samples without a header, with `rate` samples per second.
  SoundFile(const AudioPipe& pipe, int64_t rate);
  SoundFile(const SoundFile&) = delete;
  SoundFile& operator=(const SoundFile&) = delete;

  // Returns the format of the recording. `frames` is the number of samples per channel. It is SF_COUNT_MAX if
  // the header does not contain this number, and the source is a pipe or a FLAC or Ogg file.
  const SF_INFO& info() const { return info_; }
  // Sets info().frames of a file by decoding the file. Stops when the number exceeds `limit`.
  void count_frames(int64_t limit);
  // Moves from the start to the sample `position`. Decodes the samples before `position` if libsndfile cannot
  // move to `position`, as in GSM 6.10, G.721 and NMS ADPCM recordings.
  void skip_to(int64_t position);
  // Reads up to `count` samples of all channels. Returns the number of samples per channel, which is less
  // than `count` only at the end or after an error.
  int64_t read(float* samples, int64_t count);
  // Returns whether a call of read() has failed, or has reached the end of a pipe too early.
  bool has_failed() const;

 private:
  static SF_VIRTUAL_IO make_callbacks();
  void open();
  // Decodes up to `count` samples per channel. Returns the number of samples.
  int64_t decode(int64_t count);

  SoundBytes bytes_;
  sf_count_t length_ = 0, position_ = 0;  // in bytes
  SF_INFO info_{};
  std::unique_ptr<SNDFILE, int (*)(SNDFILE*)> sound_{nullptr, sf_close};
};

}  // namespace tapeformer
