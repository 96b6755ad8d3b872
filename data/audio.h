// Recordings as float samples: WAV, FLAC, Ogg and NIST SPHERE, told by their contents and not by their name.
// No state; any thread.
//
// Errors: DataError names the file and the fault: missing, no audio, another container, shorten-compressed
// SPHERE, ending before its header says, no samples, several channels with none chosen, another rate than
// asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

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
};

// What the header says.
AudioInfo read_audio_info(const std::filesystem::path& path);

Audio read_audio(const std::filesystem::path& path, const AudioOptions& options = {});

// Band-limited interpolation (libsamplerate); round(samples * to / from) samples, at least one.
std::vector<float> resample(std::span<const float> samples, int64_t from, int64_t to);

// Mono WAV of 16 bits; samples beyond [-1, 1) are clipped. Throws DataError when it cannot be written.
void write_wav(const std::filesystem::path& path, std::span<const float> samples, int64_t rate);

// Whether all samples are equal: a dead microphone or an emptied file.
bool is_silent(std::span<const float> samples);

}  // namespace tapeformer
