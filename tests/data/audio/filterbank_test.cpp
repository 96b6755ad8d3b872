#include "data/audio/filterbank.h"

#include <doctest/doctest.h>
#include <time.h>

#include <algorithm>
#include <cstring>
#include <numeric>

#include "core/base/errors.h"
#include "data/audio/audio.h"
#include "tests/data/support.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const std::string kGolden = SOURCE_DIR "/tests/golden/filterbank_";

// Reads features (frames, dims) from a golden file. tests/golden/make_filterbank.py computed the features
// with kaldi-native-fbank.
Tensor golden(const std::string& name, int64_t dims) {
  const std::string bytes = read_file(kGolden + name + ".f32");
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return Tensor::from_vector(values, {static_cast<int64_t>(values.size()) / dims, dims});
}

std::vector<float> make_recording() {
  return read_audio(kGolden + "8k.wav").samples;
}

// Returns samples of synthetic speech at 16 kHz, whose sibilants have energy up to 8 kHz.
std::vector<float> make_wide_recording() {
  const Audio audio = read_audio(kGolden + "16k.wav");
  REQUIRE(audio.rate == 16000);
  return audio.samples;
}

Tensor every_second_frame(const Tensor& features) {
  return features.view({(features.size(0) + 1) / 2, 40}, {80, 1}).clone();
}

std::vector<float> noise(int64_t count) {
  const Tensor values = uniform({count}, -0.5, 0.5, 7, DType::float32);
  return {values.data<float>(), values.data<float>() + count};
}

std::string options_error(const FilterbankOptions& options) {
  return message_of<ConfigError>([&] { const Filterbank bank(options); });
}

}  // namespace

TEST_CASE("filterbanks of a voice-like signal at 8 kHz match kaldi-native-fbank") {
  CHECK(max_difference(Filterbank({.rate = 8000}).compute(make_recording()), golden("8k", 40)) < 1e-3);
  // Negative control: features with another pre-emphasis differ by more than the tolerance.
  CHECK(max_difference(Filterbank({.rate = 8000, .preemphasis = 0.9}).compute(make_recording()),
                       golden("8k", 40)) > 0.1);
}

TEST_CASE(
    "filterbanks of 16 kHz speech with energy above 4 kHz match "
    "kaldi-native-fbank") {
  const auto wide = make_wide_recording();
  size_t repeated = 0;
  for (size_t i = 0; i + 1 < wide.size(); i += 2) repeated += wide[i] == wide[i + 1];
  CHECK(repeated < wide.size() / 8);
  const Tensor features = every_second_frame(Filterbank({}).compute(wide));
  CHECK(max_difference(features, golden("16k", 40)) < 1e-3);
  // The energy of a sibilant is above 4 kHz, in bins 31 to 39, so the comparison covers the upper filters.
  double hiss = -100;
  for (int64_t t = 0; t < features.size(0); ++t) {
    const float* row = features.data<float>() + t * 40;
    hiss = std::max<double>(hiss, *std::max_element(row + 31, row + 40) - *std::max_element(row, row + 13));
  }
  CHECK(hiss > 2);
  CHECK(max_difference(every_second_frame(Filterbank({.high_hz = 7000}).compute(wide)), golden("16k", 40)) >
        0.1);
  const Filterbank edges({.bins = 23, .snip_edges = false, .use_energy = true});
  CHECK(max_difference(edges.compute({wide.data(), 4000}), golden("16k_edges", 24)) < 1e-3);
}

TEST_CASE("filterbanks of a human voice match kaldi-native-fbank") {
  if (!have_real("fsdd")) {
    MESSAGE("skipped: no fsdd in $TAPEFORMER_DATA; the recordings above are machine speech and a buzz");
    return;
  }
  const auto spoken = read_audio(real_set("fsdd") / "recordings/7_jackson_0.wav").samples;
  CHECK(max_difference(every_second_frame(Filterbank({.rate = 8000}).compute(spoken)),
                       golden("digit_8k", 40)) < 1e-3);
}

TEST_CASE("the number of frames depends on FilterbankOptions::snip_edges") {
  const Filterbank inside({}), centred({.snip_edges = false});
  for (const auto& [samples, frames] :
       {std::pair<int64_t, int64_t>{0, 0}, {399, 0}, {400, 1}, {559, 1}, {560, 2}}) {
    CHECK(inside.count_frames(samples) == frames);
    CHECK(inside.compute(noise(samples)).shape() == Shape({frames, 40}));
  }
  CHECK(centred.count_frames(79) == 0);
  CHECK(centred.count_frames(80) == 1);
  // The signal is shorter than a frame, so it is mirrored several times.
  CHECK(centred.compute(noise(80)).shape() == Shape({1, 40}));
}

TEST_CASE("features of silence are the floor, not minus infinity") {
  const Tensor features = Filterbank({}).compute(std::vector<float>(1000, 0.0f));
  for (const double value : features.to_vector()) CHECK(value == doctest::Approx(std::log(1.1920929e-07)));
}

TEST_CASE("dither depends on the stream and has the requested standard deviation") {
  const Filterbank bank({.dither = 2, .use_energy = true});
  const std::vector<float> silence(16000, 0.0f);
  const RandomStream stream(5, "dither", 1);
  const Tensor features = bank.compute(silence, stream);
  CHECK(max_difference(features, bank.compute(silence, stream)) == 0);
  CHECK(max_difference(features, bank.compute(silence, stream.at_step(2))) > 0.1);
  double energy = 0;
  for (int64_t t = 0; t < features.size(0); ++t) energy += std::exp(features.data<float>()[t * 41]);
  CHECK(energy / static_cast<double>(features.size(0)) == doctest::Approx(399 * 4).epsilon(0.02));
}

TEST_CASE("invalid options are errors") {
  CHECK(contains(options_error({.rate = 0}), "positive rate"));
  CHECK(contains(options_error({.frame_ms = 0}), "fewer than 2 samples"));
  CHECK(contains(options_error({.shift_ms = 0}), "shift"));
  CHECK(contains(options_error({.bins = 2}), "FilterbankOptions::bins: expected at least 3, got 2"));
  CHECK(contains(options_error({.rate = 8000, .high_hz = 5000}), "20 to 5000 Hz"));
  CHECK(contains(options_error({.dither = -1}), "dither"));
}

TEST_CASE("filterbanks are at least 200 times faster than real time") {
  const Filterbank bank({});
  const auto samples = noise(16000 * 60);
  // Measures the CPU time of this thread. Other processes affect the CPU time less than the wall time.
  const auto seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  double best = 0;
  for (int repeat = 0; repeat < 5; ++repeat) {
    const double start = seconds();
    const Tensor features = bank.compute(samples);
    best = std::max(best, 60 / (seconds() - start));
  }
  MESSAGE("filterbanks: " << best << " times real time on one core");
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__)
  CHECK(best > 200);  // the value on an idle machine is about 1,000
#endif
}

TEST_CASE("filters without an FFT bin are errors with the maximum number of filters") {
  const std::string message = options_error({.rate = 8000, .bins = 200});
  const std::string start = "filterbank: FilterbankOptions::bins: expected at most ";
  REQUIRE(contains(message, start));
  CHECK(contains(message, "got 200"));
  const int64_t max_bins = std::stoll(message.substr(start.size()));
  CHECK(max_bins >= 40);
  CHECK(options_error({.rate = 8000, .bins = max_bins + 1}) != "");
  const Tensor features = Filterbank({.rate = 8000, .bins = max_bins}).compute(make_recording());
  // Each filter must contain an FFT bin. A filter without an FFT bin would have no energy in any frame.
  for (int64_t bin = 0; bin < max_bins; ++bin) {
    float highest = -100;
    for (int64_t t = 0; t < features.size(0); ++t)
      highest = std::max(highest, features.data<float>()[t * max_bins + bin]);
    CHECK(highest > -10);
  }
}

TEST_CASE("the frames of a recording that arrives in pieces are bit-identical to the frames of the whole") {
  for (const bool snip : {true, false})
    for (const FilterbankOptions& options :
         {FilterbankOptions{.rate = 8000, .dither = 1, .snip_edges = snip, .use_energy = true},
          FilterbankOptions{.rate = 8000, .frame_ms = 10, .shift_ms = 25, .bins = 13, .snip_edges = snip}}) {
      const Filterbank bank(options);
      const RandomStream stream(5, "dither", 1);
      for (const int64_t count : {0, 1, 39, 40, 79, 199, 200, 201, 401, 4003}) {
        CAPTURE(count);
        CAPTURE(snip);
        const auto samples = noise(count);
        const auto whole = bank.compute(samples, stream).to_vector();
        for (const int64_t piece : {1, 7, 80, 160, 999, 5000}) {
          FilterbankStream pieces(bank, stream);
          std::vector<double> found;
          const auto append = [&](const Tensor& frames) {
            const auto values = frames.to_vector();
            found.insert(found.end(), values.begin(), values.end());
          };
          for (int64_t at = 0; at < count; at += piece)
            append(pieces.push(std::span(samples).subspan(static_cast<size_t>(at),
                                                          static_cast<size_t>(std::min(piece, count - at)))));
          append(pieces.finish());
          CHECK(found == whole);
          CHECK(pieces.sample_count() == count);
        }
      }
    }
}

TEST_CASE("a frame is returned as soon as its samples are complete") {
  const Filterbank bank({.rate = 8000});
  FilterbankStream pieces(bank);
  const auto samples = noise(280);
  CHECK(pieces.push({samples.data(), 199}).size(0) == 0);
  CHECK(pieces.push({samples.data() + 199, 1}).size(0) == 1);
  CHECK(pieces.push({samples.data() + 200, 79}).size(0) == 0);
  CHECK(pieces.push({samples.data() + 279, 1}).size(0) == 1);
  CHECK(pieces.finish().size(0) == 0);
}
