// Functions that generate recordings in Kaldi data directories. Each phone is a tone with a different
// frequency, so a small model can learn to distinguish the phones.
#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "data/audio/audio.h"
#include "tests/train/tasks/speech/tiny_speech.h"

namespace tapeformer::test {

// Returns samples with a tone of 0.1 seconds for each phone ("A", "B" or "C"), and a pause of 0.1 seconds
// before and after each tone. All samples contain noise.
inline std::vector<float> make_phone_tones(const std::string& phones, uint64_t seed, int64_t rate = 8000) {
  std::vector<float> samples;
  const RandomStream noise(seed, "tones", 0);
  const auto sound = [&](double hertz, double loudness) {
    for (int64_t i = 0; i < rate / 10; ++i) {
      const double time = static_cast<double>(samples.size()) / static_cast<double>(rate);
      samples.push_back(static_cast<float>(loudness * std::sin(2 * M_PI * hertz * time) +
                                           0.02 * noise.normal(samples.size())));
    }
  };
  for (const char phone : phones) {
    sound(0, 0);
    sound(400 * std::pow(2.0, phone - 'A'), 0.3);
  }
  sound(0, 0);
  return samples;
}

inline void write_tiny_recordings(const std::filesystem::path& folder, int train, int test) {
  uint64_t seed = 0;
  for (const auto& [split, count] : {std::pair<std::string, int>{"train", train}, {"test", test}}) {
    std::string wav, text;
    std::filesystem::create_directories(folder / split);
    for (int i = 0; i < count; ++i) {
      ++seed;
      std::string phones, labels;
      for (uint64_t n = 0; n <= seed % 4; ++n) {
        phones += static_cast<char>('A' + (seed * 5 + n * (seed + 1)) % 3);
        labels += " " + std::string(1, phones.back());
      }
      const std::string id = "u" + std::to_string(1000 + i);
      write_wav(folder / split / (id + ".wav"), make_phone_tones(phones, seed), 8000);
      wav += id + " " + id + ".wav\n";
      text += id + labels + "\n";
    }
    write_file(folder / split / "wav.scp", wav);
    write_file(folder / split / "text", text);
  }
}

// Returns a config of a causal model for recordings at 8 kHz. The features of a frame depend on two later
// frames.
inline Config make_tiny_recordings_config(const std::filesystem::path& corpus) {
  Config config = make_tiny_speech_config(corpus, "transformer");
  config.data.dataset = "kaldi";
  config.data.options.set("sample_rate", 8000);
  config.data.options.set("num_mel_bins", 13);
  config.data.options.set("cmvn", "global");
  config.data.options.set("deltas", 1);
  config.data.options.set("max_frames", 400);
  config.model.options.set("causal", true);
  config.model.options.set("subsampling", 2);
  config.model.options.set("max_frames", 150);
  return config;
}

}  // namespace tapeformer::test
