#include "models/speech/stream_decoder.h"

#include <doctest/doctest.h>

#include "core/allocator.h"
#include "models/speech/ctc_decoding.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr int64_t kClasses = 6;

SpeechModelOptions streaming_options(const std::string& kind, int64_t subsampling) {
  SpeechModelOptions options{.features = kClasses,
                             .classes = kClasses,
                             .subsampling = subsampling,
                             .causal = true,
                             .max_frames = 80};
  options.encoder = small_encoder(kind);
  return options;
}

// Sets the weights so that the most probable class of a step is the index of the largest feature in the first
// frame of the step. The class does not depend on the state or the position.
void make_memoryless(const SpeechModel& model) {
  for (const auto& layer : model.encoder->layers)
    for (const Linear* branch : {&layer->attention.out_projection, &layer->feedforward.linear2}) {
      branch->weight.fill(0);
      if (branch->bias.defined()) branch->bias.fill(0);
    }
  for (const Linear* map : std::initializer_list<const Linear*>{model.input_projection.get(), &model.head}) {
    map->weight.fill(0);
    map->bias.fill(0);
    for (int64_t i = 0; i < kClasses; ++i) map->weight.data<float>()[i * map->weight.size(1) + i] = 1000;
  }
}

// Returns a list of at least `steps` classes, one for each step. Each label lasts 1 to 12 steps, and every
// 50th label lasts 150 steps, which is longer than all tested windows. Each label is followed by 0 to 7
// blanks.
std::vector<int64_t> held_labels(int64_t steps) {
  const RandomStream random(3, "held labels");
  std::vector<int64_t> classes;
  for (uint64_t n = 0; static_cast<int64_t>(classes.size()) < steps; ++n) {
    const auto label = 1 + static_cast<int64_t>(random.uniform(3 * n) * (kClasses - 1));
    const auto held = n % 50 == 49 ? size_t{150} : 1 + static_cast<size_t>(random.uniform(3 * n + 1) * 12);
    const auto blanks = static_cast<size_t>(random.uniform(3 * n + 2) * 8);
    classes.insert(classes.end(), held, label);
    classes.insert(classes.end(), blanks, kSpeechBlank);
  }
  return classes;
}

std::vector<int64_t> collapsed(const std::vector<int64_t>& classes) {
  std::vector<int64_t> labels;
  for (size_t t = 0; t < classes.size(); ++t)
    if (classes[t] != kSpeechBlank && (t == 0 || classes[t] != classes[t - 1])) labels.push_back(classes[t]);
  return labels;
}

}  // namespace

TEST_CASE("a stream decoder neither loses nor repeats labels at restarts") {
  for (const std::string& kind : recurrent_kinds())
    for (const int64_t subsampling : {1, 2})
      for (const int64_t window : {50, 57, 80}) {
        CAPTURE(kind);
        CAPTURE(subsampling);
        CAPTURE(window);
        SpeechModel model(streaming_options(kind, subsampling));
        model.initialize(3);
        make_memoryless(model);
        StreamDecoder decoder(model, {.max_window_frames = window, .min_pause_frames = 0});
        const std::vector<int64_t> classes = held_labels(3000);
        std::vector<int64_t> labels;
        for (const int64_t best : classes) {
          const Tensor frame = Tensor::zeros({1, kClasses});
          frame.data<float>()[best] = 1;
          for (int64_t i = 0; i < subsampling; ++i)
            for (const int64_t label : decoder.push(frame)) labels.push_back(label);
        }
        const std::vector<int64_t> expected = collapsed(classes);
        CHECK(labels.size() == expected.size());
        CHECK(labels == expected);
        CHECK(decoder.restart_count() >= 3000 * subsampling / window);
      }
}

TEST_CASE("a stream decoder starts a new state when speech begins after a pause") {
  SpeechModel model(streaming_options("linear", 2));
  model.initialize(3);
  // With these weights, the blank is the most probable class if feature 0 of a frame is 1. Below, feature 0
  // is set to 1 in `quiet`, and to 0 in all frames of `speech`.
  for (int64_t i = 0; i < model.input_projection->weight.size(0); ++i)
    for (const int64_t frame : {0, 1})
      model.input_projection->weight.data<float>()[i * 2 * kClasses + frame * kClasses] =
          i == 0 ? 1000.0F : 0.0F;
  model.head.weight.data<float>()[0] = 1000;
  model.head.bias.data<float>()[0] = -2000;
  const Tensor speech = normal({60, kClasses}, 2, DType::float32), quiet = Tensor::full({1, kClasses}, -20);
  for (int64_t t = 0; t < 60; ++t) speech.data<float>()[t * kClasses] = 0;
  quiet.data<float>()[0] = 1;
  // These factors and offsets exclude feature 0 from the energy of a frame.
  std::vector<double> scale(kClasses, 1.0), offset(kClasses, 0.0);
  scale[0] = 0;
  offset[0] = -50;
  const auto hear = [&](StreamDecoder& decoder, int64_t silence_after) {
    std::vector<int64_t> labels;
    const auto push = [&](const Tensor& frame) {
      for (const int64_t label : decoder.push(frame)) labels.push_back(label);
    };
    push(quiet);
    for (int64_t t = 0; t < 60; ++t) push(speech.view({1, kClasses}, {kClasses, 1}, t * kClasses));
    for (int64_t t = 0; t < silence_after; ++t) push(quiet);
    return labels;
  };
  StreamDecoder decoder(model,
                        {.max_window_frames = 200, .feature_scales = scale, .feature_offsets = offset});
  const auto alone = hear(decoder, 60);
  CHECK(alone.size() > 3);
  CHECK(decoder.restart_count() == 0);
  for (const int64_t silence : {60, 45, 1001, 60}) CHECK(hear(decoder, silence) == alone);
  CHECK(decoder.restart_count() == 4);
  // Negative control: without restarts, earlier speech changes the result.
  StreamDecoder endless(model, {.max_window_frames = 0});
  CHECK(hear(endless, 60) == alone);
  CHECK(hear(endless, 60) != alone);
}

TEST_CASE("LowEnergyCounter counts frames in the lower half of the energies of the last ten seconds") {
  LowEnergyCounter counter;
  CHECK(counter.push(5) == 1);
  CHECK(counter.push(10) == 0);
  CHECK(counter.push(7.5) == 1);
  CHECK(counter.push(0) == 2);
  CHECK(counter.push(5.1) == 0);
  // A loud frame affects the results of push() only for ten seconds.
  counter.push(100);
  CHECK(counter.push(10) == 1);
  for (int i = 0; i < 1100; ++i) counter.push(i % 2 * 10.0);
  CHECK(counter.push(10) == 0);
  counter.reset();
  CHECK(counter.push(100) == 1);
}

TEST_CASE("the memory of a stream decoder does not depend on the length of the stream") {
  SpeechModelOptions options = streaming_options("linear", 4);
  options.encoder.layers = 1;
  SpeechModel model(options);
  model.initialize(3);
  StreamDecoder decoder(model, {.max_window_frames = 80});
  const Tensor frames = normal({500, kClasses}, 2, DType::float32);
  const auto push = [&](int64_t count) {
    for (int64_t t = 0; t < count; ++t)
      decoder.push(frames.view({1, kClasses}, {kClasses, 1}, t % 500 * kClasses));
  };
  push(6000);
  const int64_t bytes = decoder.state_bytes(), active = get_device_allocator().stats().active_bytes;
  get_device_allocator().reset_peak();
  push(6000);
  const int64_t peak = get_device_allocator().stats().peak_bytes;
  push(348000);
  CHECK(decoder.frame_count() == 360000);
  CHECK(decoder.restart_count() > 3600);
  CHECK(decoder.state_bytes() == bytes);
  CHECK(get_device_allocator().stats().active_bytes == active);
  CHECK(get_device_allocator().stats().peak_bytes == peak);
}

TEST_CASE("a stream decoder rejects invalid windows and frames") {
  SpeechModel linear(streaming_options("linear", 1)), softmax(streaming_options("softmax", 1));
  linear.initialize(1);
  CHECK_THROWS_WITH_AS((StreamDecoder{linear, {.max_window_frames = 49}}),
                       "window: expected 0 or at least 50 frames, got 49", OptionError);
  CHECK_THROWS_WITH_AS((StreamDecoder{softmax, {.max_window_frames = 81}}),
                       "window: expected at most SpeechModelOptions::max_frames = 80 frames, the capacity of "
                       "softmax attention, got 81",
                       ConfigError);
  StreamDecoder decoder(linear, {.max_window_frames = 81});
  CHECK_THROWS_WITH_AS(decoder.push(Tensor::zeros({1, 5})),
                       "StreamDecoder: frame (1, 5) of float32 must be (1, 6) of float32", ShapeError);
}
