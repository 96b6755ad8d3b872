#include "train/tasks/speech/features.h"

#include <doctest/doctest.h>
#include <malloc.h>

#include "core/allocator.h"
#include "models/speech/stream.h"
#include "tests/train/tasks/speech/tiny_recordings.h"
#include "train/tasks/speech/data.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Returns `seconds` seconds of noise at 8 kHz, in which loud and quiet parts alternate.
std::vector<float> rustle(int64_t seconds) {
  std::vector<float> samples(static_cast<size_t>(8000 * seconds));
  const RandomStream noise(3, "rustle", 0);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>((i / 1000 % 3 == 0 ? 0.2 : 0.01) * (noise.uniform(i) - 0.5));
  return samples;
}

// Returns the number of bytes that malloc() has allocated and that are still in use. The number includes the
// memory of tensors on the CPU.
int64_t heap_bytes() {
  const auto info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

SpeechMetadata rustle_metadata(const Config& config) {
  FeatureStatistics global;
  global.add(Filterbank(SpeechCorpus(config).make_feature_options(false).filterbank).compute(rustle(1)));
  return {2 * config.data.get<int64_t>("num_mel_bins"), PhoneTable(Words{"A", "B", "C"}), global};
}

}  // namespace

TEST_CASE("features of a stream equal the features of the file, to the bit") {
  const TempDir dir;
  write_wav(dir / "a.wav", rustle(2), 8000);
  for (const std::string cmvn : {"none", "global", "utterance"})
    for (const int64_t deltas : {0, 1, 2}) {
      Config config = make_tiny_recordings_config("");
      config.data.options.set("cmvn", cmvn);
      config.data.options.set("deltas", deltas);
      SpeechMetadata metadata = rustle_metadata(config);
      metadata.feature_dim = config.data.get<int64_t>("num_mel_bins") * (deltas + 1);
      const auto whole = compute_file_features(SpeechCorpus(config), metadata, dir / "a.wav").to_vector();
      FeatureStream stream(SpeechCorpus(config), metadata, dir / "a.wav");
      std::vector<double> found;
      int pieces = 0;
      for (Tensor rows = stream.read_frames(); rows.defined(); rows = stream.read_frames(), ++pieces) {
        const auto values = rows.to_vector();
        found.insert(found.end(), values.begin(), values.end());
      }
      CHECK(found == whole);
      CHECK((pieces > 50) == (cmvn != "utterance"));
      CHECK(!stream.read_frames().defined());
    }
}

TEST_CASE("streams of 100 and of 10 seconds need the same memory") {
  const TempDir dir;
  const Config config = make_tiny_recordings_config("");
  const SpeechMetadata metadata = rustle_metadata(config);
  const auto model = make_speech_model(config, metadata);
  std::vector<int64_t> peaks, steps, heaps;
  for (const int64_t seconds : {10, 10, 100}) {  // the first pass allocates memory that stays in use
    write_wav(dir / "a.wav", rustle(seconds), 8000);
    get_device_allocator().reset_peak();
    const int64_t before = get_device_allocator().stats().active_bytes;
    StreamingSpeechModel stream(*model);
    FeatureStream input(SpeechCorpus(config), metadata, dir / "a.wav");
    int64_t complete = 0;
    for (Tensor rows = input.read_frames(); rows.defined(); rows = input.read_frames())
      for (int64_t row = 0; row < rows.size(0); ++row)
        complete += stream.push(rows.view({1, rows.size(1)}, {rows.size(1), 1}, row * rows.size(1)));
    peaks.push_back(get_device_allocator().stats().peak_bytes - before);
    heaps.push_back(heap_bytes());
    steps.push_back(complete);
  }
  CHECK(peaks[1] == peaks[2]);
  CHECK(peaks[1] > 0);
  constexpr int64_t kSamples = 90 * 8000 * 4;  // bytes of 90 seconds of samples
  CHECK(heaps[2] - heaps[1] < kSamples / 4);
  CHECK(steps == std::vector<int64_t>{499, 499, 4999});
}
