#include "models/speech/model.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "core/allocator.h"
#include "models/speech/stream.h"
#include "ops/view.h"
#include "tests/models/kinds.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

SpeechModelOptions small(const std::string& kind, int64_t subsampling = 1,
                         SubsamplingKind how = SubsamplingKind::stack) {
  SpeechModelOptions options{
      .features = 5, .classes = 6, .subsampling = subsampling, .subsampling_kind = how, .max_frames = 24};
  if (kind == "lstm") {
    options.encoder_kind = SpeechEncoderKind::lstm;
    options.lstm_hidden = 7;
    options.encoder.layers = 2;
    return options;
  }
  options.encoder = small_encoder(kind);
  return options;
}

// Returns the encoders for speech models without streaming: "lstm" and the attention kinds that support
// length masks.
std::vector<std::string> encoders() {
  std::vector<std::string> names = length_mask_kinds();
  names.emplace_back("lstm");
  return names;
}

Batch random_batch() {
  return {.lengths = Tensor::from_vector<int64_t>({17, 9, 12}, {3}),
          .labels = Tensor::from_vector<int64_t>({1, 5, 5, 3, 2, -1, -1, -1, 4, 4, -1, -1}, {3, 4}),
          .label_lengths = Tensor::from_vector<int64_t>({4, 1, 2}, {3}),
          .elements = normal({3, 17, 5}, 2, DType::float32)};
}

}  // namespace

TEST_CASE("the loss of a speech model has gradients for all parameters and does not depend on padding") {
  for (const std::string& kind : encoders())
    for (const int64_t subsampling : {1, 2, 4}) {
      CAPTURE(kind);
      CAPTURE(subsampling);
      SpeechModel model(small(kind, subsampling));
      model.initialize(3);
      const Batch batch = random_batch();
      const CtcLoss loss = model.compute_loss(batch, {});
      // CTC needs five steps for the first utterance, which has four labels with two equal adjacent labels.
      // If the subsampling is 4, the 17 frames of this utterance give only four steps.
      CHECK(loss.infeasible_count == (subsampling == 4 ? 1 : 0));
      backward(loss.loss);
      for (const auto& [bound_name, parameter] : model.parameters()) {
        const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
        CAPTURE(name);
        REQUIRE(gradient(parameter).defined());
        double largest = 0;
        for (const double g : gradient(parameter).to_vector()) largest = std::max(largest, std::abs(g));
        // The gradient of the bias of the key projection may be 0, because the results of some attention
        // kinds do not depend on this bias.
        if (!name.ends_with("key_projection.bias")) CHECK(largest > 0);
      }
      Batch other = batch;
      other.elements = batch.elements.clone();
      for (int64_t t = 9; t < 17; ++t)
        for (int64_t i = 0; i < 5; ++i) other.elements.data<float>()[(17 + t) * 5 + i] = 100;
      CHECK(model.compute_loss(other, {}).loss.item() == doctest::Approx(loss.loss.item()).epsilon(1e-6));
    }
}

TEST_CASE("the logits of an utterance do not depend on its batch") {
  for (const std::string& kind : encoders()) {
    CAPTURE(kind);
    SpeechModel model(small(kind, 2));
    model.initialize(3);
    const Batch batch = random_batch();
    const SpeechOutput all = model.forward(batch.elements, batch.lengths, {});
    CHECK(all.lengths.to_vector() == std::vector<double>{8, 4, 6});
    const Tensor alone = batch.elements.view({1, 9, 5}, {45, 5, 1}, 85).clone();
    const SpeechOutput single = model.forward(alone, Tensor::from_vector<int64_t>({9}, {1}), {});
    CHECK(single.logits.shape() == Shape{1, 4, 6});
    CHECK(max_difference(all.logits.alias({1, 4, 6}, {48, 6, 1}, 48).clone(), single.logits) < 1e-5);
  }
}

TEST_CASE("LSH: the logits of an utterance do not depend on its batch") {
  for (const char* preset : {"reformer", "trax", "fast_transformers"})
    for (const int64_t chunk : {1, 3, 8, 16}) {
      CAPTURE(preset);
      CAPTURE(chunk);
      SpeechModelOptions options = small("lsh");
      options.encoder.attention.front().options.set("preset", std::string(preset));
      options.encoder.attention.front().options.set("chunk_length", chunk);
      options.encoder.attention.front().options.set("buckets", int64_t{chunk == 16 ? 0 : 12});
      SpeechModel model(options);
      model.initialize(3);
      const Batch batch = random_batch();
      const SpeechOutput all = model.forward(batch.elements, batch.lengths, {});
      const Tensor alone = batch.elements.view({1, 9, 5}, {45, 5, 1}, 85).clone();
      const SpeechOutput single = model.forward(alone, Tensor::from_vector<int64_t>({9}, {1}), {});
      CHECK(max_difference(all.logits.alias({1, 9, 6}, {102, 6, 1}, 102).clone(), single.logits) < 1e-5);
    }
}

TEST_CASE("subsampling by convolution: parameters have gradients, and logits do not depend on the batch") {
  for (const char* kind : {"linear", "lstm"})
    for (const int64_t factor : {2, 4}) {
      SpeechModel model(small(kind, factor, SubsamplingKind::conv));
      model.initialize(3);
      CHECK(model.subsampling.layers.size() == (factor == 4 ? 2 : 1));
      const Batch batch = random_batch();
      const SpeechOutput all = model.forward(batch.elements, batch.lengths, {});
      CHECK(all.logits.size(1) == 17 / factor);
      const int64_t steps = 9 / factor;
      CHECK(all.lengths.to_vector()[1] == steps);
      const Tensor alone = batch.elements.view({1, 9, 5}, {45, 5, 1}, 85).clone();
      const SpeechOutput single = model.forward(alone, Tensor::from_vector<int64_t>({9}, {1}), {});
      const Tensor batch_logits = all.logits.alias({1, steps, 6}, {steps * 6, 6, 1}, 17 / factor * 6).clone();
      CHECK(max_difference(batch_logits, single.logits) < 1e-5);
      backward(model.compute_loss(batch, {}).loss);
      for (const auto& [bound_name, parameter] : model.parameters()) {
        const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
        CAPTURE(name);
        REQUIRE(gradient(parameter).defined());
        const auto values = gradient(parameter).to_vector();
        CHECK(std::any_of(values.begin(), values.end(), [](double g) { return g != 0; }));
      }
    }
  // With subsampling 1, the model has no convolutions.
  CHECK(count_parameters(SpeechModel(small("linear", 1, SubsamplingKind::conv))) ==
        count_parameters(SpeechModel(small("linear"))));
}

TEST_CASE("LSH: a batch with fewer positions than buckets can be trained") {
  for (const int64_t chunk : {4, 24}) {  // the sequence has several chunks or one chunk
    CAPTURE(chunk);
    SpeechModelOptions options = small("lsh");
    options.encoder.attention.front().options.set("buckets", int64_t{chunk == 24 ? 0 : 24});
    options.encoder.attention.front().options.set("chunk_length", chunk);
    SpeechModel model(options);
    model.initialize(3);
    const CtcLoss loss = model.compute_loss(random_batch(), {.training = true, .seed = 1, .step = 1});
    CHECK(std::isfinite(loss.loss.item()));
    backward(loss.loss);
  }
}

TEST_CASE("losses and gradients of a batch are averages over its utterances, weighted by loss_count()") {
  for (const CtcReduction reduction : {CtcReduction::per_utterance, CtcReduction::per_label}) {
    SpeechModelOptions options = small("softmax", 4);
    options.reduction = reduction;
    SpeechModel model(options);
    model.initialize(3);
    model.convert(DType::float64);
    Batch all = random_batch();  // the first utterance is infeasible
    all.elements = all.elements.to(DType::float64);
    CHECK(model.compute_loss_divisor(all) == (reduction == CtcReduction::per_utterance ? 2 : 3));
    const Tensor whole = model.compute_loss(all, {}).loss;
    backward(whole);
    std::vector<std::vector<double>> expected;
    for (const auto& [name, parameter] : model.parameters()) {
      expected.push_back(gradient(parameter).to_vector());
      set_gradient(parameter, {});
    }
    double sum = 0;
    for (int64_t b = 0; b < 3; ++b) {
      const Batch one{.lengths = slice(all.lengths, 0, b, b + 1),
                      .labels = slice(all.labels, 0, b, b + 1),
                      .label_lengths = slice(all.label_lengths, 0, b, b + 1),
                      .elements = slice(all.elements, 0, b, b + 1)};
      const double share = static_cast<double>(model.compute_loss_divisor(one)) /
                           static_cast<double>(model.compute_loss_divisor(all));
      const Tensor loss = model.compute_loss(one, {}).loss;
      sum += share * loss.item();
      backward(loss, Tensor::full({}, share, DType::float64));
    }
    CHECK(sum == doctest::Approx(whole.item()).epsilon(1e-13));
    size_t i = 0;
    for (const auto& [bound_name, parameter] : model.parameters()) {
      const std::string& name = bound_name;  // clang 14 cannot capture a structured binding
      CAPTURE(name);
      const auto found = gradient(parameter).to_vector();
      double worst = 0;
      for (size_t e = 0; e < found.size(); ++e) worst = std::max(worst, std::abs(found[e] - expected[i][e]));
      CHECK(worst < 1e-14);
      ++i;
    }
  }
}

TEST_CASE("the speech models of Transformers are RNNs have the published sizes") {
  SpeechModelOptions transformer;
  transformer.encoder.attention = {{"linear", find_attention_kind("linear").default_options()}};
  const SpeechModel model(transformer);
  // The encoder has 9 layers with attention, feed-forward and two norms, and a norm after the last layer.
  CHECK(count_parameters(*model.encoder) == 9 * (4 * (192 * 192 + 192) + 2 * 192 * 768 + 960 + 768) + 384);
  SpeechModelOptions recurrent;
  recurrent.encoder_kind = SpeechEncoderKind::lstm;
  recurrent.encoder.layers = 3;
  // torch.nn.LSTM(40, 320, 3, bidirectional=True) has this number of parameters.
  CHECK(count_parameters(*SpeechModel(recurrent).lstm) == 5852160);
}

TEST_CASE("a stream of frames gives the logits of the causal model, in constant memory") {
  struct Case {
    std::string kind;
    SubsamplingKind subsampling_kind;
    int64_t subsampling;
    bool is_rotary;
  };
  std::vector<Case> cases;
  for (const std::string& kind : recurrent_kinds()) {
    for (const SubsamplingKind how : {SubsamplingKind::stack, SubsamplingKind::conv})
      for (const int64_t subsampling : {1, 2, 4}) cases.push_back({kind, how, subsampling, false});
    cases.push_back({kind, SubsamplingKind::stack, 2, true});
  }
  for (const Case& c : cases) {
    CAPTURE(c.kind);
    CAPTURE(c.subsampling);
    const int64_t subsampling = c.subsampling;
    SpeechModelOptions options = small(c.kind, subsampling, c.subsampling_kind);
    options.causal = true;
    options.use_sinusoidal_positions = !c.is_rotary;
    options.encoder.rotary = c.is_rotary;
    SpeechModel model(options);
    model.initialize(3);
    const Tensor features = normal({3, 24, 5}, 2, DType::float32);
    const SpeechOutput parallel = model.forward(features, Tensor::full({3}, 24, DType::int64), {});
    StreamingSpeechModel stream(model, 3);
    const int64_t bytes = stream.state_bytes();
    for (int repeat = 0; repeat < 2; ++repeat) {  // the second pass follows reset()
      int64_t steps = 0;
      for (int64_t t = 0; t < 24; ++t) {
        const Tensor frame = features.view({3, 5}, {120, 1}, t * 5).clone();
        const int64_t before = get_device_allocator().stats().allocation_count;
        const bool complete = stream.push(frame);
        CHECK(get_device_allocator().stats().allocation_count == before);
        REQUIRE(complete == ((t + 1) % subsampling == 0));
        if (!complete) continue;
        const Tensor expected = parallel.logits.alias({3, 6}, {parallel.logits.strides()[0], 1}, steps * 6);
        CHECK(max_difference(stream.logits(), expected.clone()) < 1e-5);
        ++steps;
      }
      CHECK(steps == parallel.logits.size(1));
      if (!find_attention_kind(c.kind).capabilities.has_constant_size_state)
        CHECK_THROWS_WITH_AS(stream.push(Tensor::zeros({3, 5})),
                             "StreamingSpeechModel: frame 25 exceeds the maximum length, 24", ShapeError);
      stream.reset();
    }
    CHECK(stream.state_bytes() == bytes);
  }
}

TEST_CASE("streams continue after the maximum length with the next positions") {
  // The window of local attention is longer than the maximum sequence length, which is allowed.
  AttentionLayerChoice local{"local", find_attention_kind("local").default_options()};
  local.options.set("window", int64_t{50});
  for (const bool is_local : {false, true}) {
    SpeechModelOptions options = small("linear", 2);
    options.causal = true;
    if (is_local) options.encoder.attention = {local};
    SpeechModel model(options);
    model.initialize(3);
    options.max_frames = 60;
    SpeechModel longer(options);
    longer.initialize(3);
    const Tensor features = normal({1, 60, 5}, 2, DType::float32);
    const Tensor expected = longer.forward(features, Tensor::full({1}, 60, DType::int64), {}).logits;
    StreamingSpeechModel stream(model);
    for (int64_t t = 0; t < 60; ++t)
      if (stream.push(features.view({1, 5}, {5, 1}, t * 5)))
        CHECK(max_difference(stream.logits(), expected.alias({1, 6}, {6, 1}, t / 2 * 6).clone()) < 1e-5);
  }
}

TEST_CASE(
    "without positions, a permutation of the frames permutes the logits; sinusoids and rotations prevent "
    "it") {
  enum class Kind { sinusoidal, rotary, none };
  for (const Kind kind : {Kind::sinusoidal, Kind::rotary, Kind::none}) {
    SpeechModelOptions options = small("linear");
    options.use_sinusoidal_positions = kind == Kind::sinusoidal;
    options.encoder.rotary = kind == Kind::rotary;
    SpeechModel model(options);
    model.initialize(3);
    CHECK(model.position_features.defined() == options.use_sinusoidal_positions);
    const Tensor features = normal({1, 2, 5}, 2, DType::float32),
                 lengths = Tensor::full({1}, 2, DType::int64);
    const Tensor swapped = Tensor::empty(features.shape(), DType::float32);
    for (int64_t i = 0; i < 10; ++i) swapped.data<float>()[i] = features.data<float>()[(i + 5) % 10];
    const auto a = model.forward(features, lengths, {}).logits.to_vector(),
               b = model.forward(swapped, lengths, {}).logits.to_vector();
    double difference = 0;
    for (size_t i = 0; i < 12; ++i) difference = std::max(difference, std::abs(a[i] - b[(i + 6) % 12]));
    CHECK((difference < 1e-5) == (kind == Kind::none));
  }
}

TEST_CASE("logits depend on later frames unless the model is causal") {
  for (const bool causal : {true, false}) {
    SpeechModelOptions options = small("linear");
    options.causal = causal;
    SpeechModel model(options);
    model.initialize(3);
    const Tensor features = normal({1, 10, 5}, 2, DType::float32),
                 lengths = Tensor::full({1}, 10, DType::int64);
    const Tensor changed = features.clone();
    changed.data<float>()[49] += 5;
    const auto a = model.forward(features, lengths, {}).logits.to_vector(),
               b = model.forward(changed, lengths, {}).logits.to_vector();
    CHECK((a[0] == b[0]) == causal);
    CHECK(a.back() != b.back());
  }
}

TEST_CASE("invalid options and arguments of speech models are errors") {
  CHECK_THROWS_WITH_AS(SpeechModel(small("linear", 3)), "subsampling: expected 1, 2 or 4, got 3",
                       OptionError);
  SpeechModel model(small("linear"));
  model.initialize(1);
  const Tensor lengths = Tensor::full({2}, 9, DType::int64);
  CHECK_THROWS_WITH_AS(model.forward(normal({2, 9, 4}, 0, DType::float32), lengths, {}),
                       "speech model: features (2, 9, 4) must be (batch, frames, 5)", ShapeError);
  CHECK_THROWS_WITH(model.forward(normal({2, 8, 5}, 0, DType::float32), lengths, {}),
                    "speech model: length 9 of sequence 0 is not in [0, 8]");
  CHECK_THROWS_WITH(model.forward(normal({2, 25, 5}, 0, DType::float32), lengths, {}),
                    "speech model: utterances of 25 frames are longer than the maximum of 24");
  CHECK_THROWS_WITH_AS(StreamingSpeechModel{model}, "streaming recognition needs a causal Transformer",
                       ConfigError);
  CHECK_THROWS_AS(StreamingSpeechModel{SpeechModel(small("lstm"))}, ConfigError);
}
