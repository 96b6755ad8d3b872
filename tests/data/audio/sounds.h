// Functions that write recordings for tests, and read recordings from a pipe.
#pragma once

#include <doctest/doctest.h>
#include <sndfile.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/audio/audio.h"

namespace tapeformer::test {

inline std::vector<float> tone(int64_t count, double frequency, double rate) {
  std::vector<float> samples(static_cast<size_t>(count));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(0.5 * std::sin(2 * M_PI * frequency * static_cast<double>(i) / rate));
  return samples;
}

// Writes a sound file. `samples` is interleaved: it has one value per channel for each point in time.
// `format` combines SF_FORMAT constants of libsndfile. `rate` is in Hz.
inline void write_sound(const std::filesystem::path& path, int format, const std::vector<float>& samples,
                        int rate, int channels = 1) {
  SF_INFO info{};
  info.samplerate = rate;
  info.channels = channels;
  info.format = format;
  SNDFILE* file = sf_open(path.c_str(), SFM_WRITE, &info);
  REQUIRE(file);
  const auto frames = static_cast<sf_count_t>(samples.size()) / channels;
  REQUIRE(sf_writef_float(file, samples.data(), frames) == frames);
  sf_close(file);
}

// Returns the samples that AudioStream reads from a pipe with these bytes. If `raw` is true, the bytes have
// no header.
inline std::vector<float> piped(const std::string& bytes, bool raw, const AudioOptions& options = {}) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  REQUIRE(write(ends[1], bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  close(ends[1]);
  const std::unique_ptr<int, void (*)(int*)> reader(&ends[0], [](int* end) { close(*end); });
  AudioStream stream(AudioPipe{.descriptor = ends[0], .is_raw = raw}, options);
  std::vector<float> found;
  for (auto block = stream.next(); !block.empty(); block = stream.next())
    found.insert(found.end(), block.begin(), block.end());
  return found;
}

}  // namespace tapeformer::test
