#include "core/base/interruption.h"

#include <doctest/doctest.h>

#include "models/generation.h"
#include "models/speech/model.h"
#include "tests/models/small_model.h"
#include "tests/support/random.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

struct Interrupted {};
int layers_before_interruption = 0;

void interrupt_after_layers() {
  if (layers_before_interruption-- == 0) throw Interrupted();
}

// Interrupts the computation before its first layer, before its second layer and so on, until it is complete.
// Returns the number of interruptions.
int count_interruptions(const std::function<void()>& compute) {
  const InterruptionScope scope(interrupt_after_layers);
  for (int count = 0;; ++count) {
    layers_before_interruption = count;
    try {
      compute();
      return count;
    } catch (const Interrupted&) {
    }
  }
}

}  // namespace

TEST_CASE("computations can be interrupted before each layer, also while the backward pass repeats layers") {
  AutoregressiveModel model(reformer_options("linear"));  // two layers
  model.initialize(3);
  const Batch batch{.tokens = random_tokens(2, 11, 256)};
  const Tensor weight = model.predictor.weight;
  const auto compute_gradient = [&] {
    set_gradient(weight, {});
    backward(model.compute_loss(batch, {}));
  };
  compute_gradient();
  const auto expected = gradient(weight).to_vector();
  CHECK(count_interruptions(compute_gradient) == 4);
  CHECK(gradient(weight).to_vector() == expected);
}

TEST_CASE("generation can be interrupted before each token") {
  AutoregressiveModel model(small_options("linear", OutputHead::categorical));
  model.initialize(3);
  const Tensor prefix = random_tokens(2, 1, 7);
  const Tensor expected = generate(model, prefix, 6, {});
  Tensor sequences;
  CHECK(count_interruptions([&] { sequences = generate(model, prefix, 6, {}); }) == 5);
  CHECK(sequences.to_vector() == expected.to_vector());
  CHECK(count_interruptions([&] { generate(model, prefix, 6, {.mode = GenerationMode::recompute}); }) == 10);
}

TEST_CASE(
    "recognition by an LSTM can be interrupted before each layer, and inner scopes replace outer scopes") {
  SpeechModel model({.features = 5,
                     .classes = 6,
                     .encoder_kind = SpeechEncoderKind::lstm,
                     .encoder = {.layers = 3},
                     .lstm_hidden = 7});
  model.initialize(3);
  const Tensor features = normal({1, 9, 5}, 2, DType::float32);
  const auto compute = [&] { model.forward(features, Tensor::from_vector<int64_t>({9}, {1}), {}); };
  CHECK(count_interruptions(compute) == 3);
  CHECK(count_interruptions([&] {
          const InterruptionScope inner(nullptr);
          compute();
        }) == 0);
}
