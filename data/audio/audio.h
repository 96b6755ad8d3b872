// Recordings as float samples: WAV, FLAC, Ogg and NIST SPHERE, told by their contents and not by their name.
// Any thread.
//
// Throws DataError with the name of the file if the file is missing, is not audio, has an unsupported
// container, is shorten-compressed SPHERE, is shorter than its header says, has no samples, has several
// channels but none is chosen, has a rate other than the requested one, or is longer than the limit.
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
  int64_t channels = 0;
  int64_t samples = 0;  // per channel
};

struct Audio {
  std::vector<float> samples;  // one channel, in [-1, 1)
  int64_t rate = 0;            // samples per second
};

struct AudioOptions {
  std::optional<int64_t> channel = {};  // counted from 0; without it a file of several channels is refused
  int64_t rate = 0;                     // the wanted rate; 0: the file's own
  bool resample = false;                // a file of another rate is resampled; else refused
  int64_t first = 0;                    // samples [first, last) of the file, counted at its own rate
  std::optional<int64_t> last = {};     // without it: to the end of the file
  double max_seconds = 0;               // limit of the length, counted from `first`; 0: no limit
};

// Returns the contents of the header. If the header does not contain the length (FLAC that was written to a
// pipe), counts the samples. If `max_seconds` is above 0, counting stops after `max_seconds`.
AudioInfo read_audio_info(const std::filesystem::path& path, double max_seconds = 0);

// Returns the samples. Throws DataError for a recording longer than options.max_seconds, at the latest when
// decoding reaches the limit. Memory is therefore bounded, even if the header is wrong.
Audio read_audio(const std::filesystem::path& path, const AudioOptions& options = {});

// A descriptor that audio comes from, which is not closed: a WAV stream, also one whose header does not know
// its length, or samples without a header.
struct AudioPipe {
  int descriptor = 0;
  bool raw = false;  // little-endian 16-bit samples of one channel at AudioOptions::rate
  std::string name = "standard input";
};

// What read_audio reads, in blocks of a fiftieth of a second: memory does not grow with the length. One
// thread.
class AudioStream {
 public:
  AudioStream(const std::filesystem::path& path, const AudioOptions& options);
  AudioStream(const AudioPipe& pipe, const AudioOptions& options);
  ~AudioStream();

  int64_t rate() const { return rate_; }
  // The next samples, valid until the next call; none at the end. Waits for those of a pipe.
  std::span<const float> next();

 private:
  struct Source;
  void start();
  void check_limit(int64_t samples) const;

  std::string name_;
  AudioOptions options_;
  std::unique_ptr<Source> source_;
  std::optional<Resampler> resampler_;
  std::vector<float> frames_, samples_;  // as they are in the file; of one channel at the wanted rate
  int64_t rate_ = 0, at_ = 0, last_ = 0;
  bool ended_ = false;
};

// Mono WAV of 16 bits; samples beyond [-1, 1) are clipped. Throws DataError when it cannot be written.
void write_wav(const std::filesystem::path& path, std::span<const float> samples, int64_t rate);

// Whether all samples are equal: a dead microphone or an emptied file.
bool is_silent(std::span<const float> samples);

}  // namespace tapeformer
