// Trains a Transformer with linear attention to copy sequences of random symbols, and prints the loss of a
// few steps and the accuracy for new sequences.
#include <tapeformer/core/random/rng.h>
#include <tapeformer/models/attention/attention.h>
#include <tapeformer/models/autoregressive_model.h>
#include <tapeformer/train/optimization/optimizer.h>

#include <algorithm>
#include <cstdint>
#include <iostream>

using namespace tapeformer;

// A sequence has kCopied random symbols, followed by the same symbols.
constexpr int64_t kBatch = 32, kSymbols = 10, kCopied = 8;
constexpr uint64_t kSeed = 1;

// Returns random sequences, (kBatch, 2 * kCopied). The mask selects the predictions of the copied symbols.
Batch make_batch(uint64_t number) {
  const RandomStream stream(kSeed, "batches", number);
  Batch batch{.tokens = Tensor::empty({kBatch, 2 * kCopied}, DType::uint8),
              .mask = Tensor::zeros({kBatch, 2 * kCopied - 1}, DType::uint8)};
  for (int64_t row = 0; row < kBatch; ++row)
    for (int64_t i = 0; i < kCopied; ++i) {
      const auto symbol =
          static_cast<uint8_t>(stream.uniform_below(static_cast<uint64_t>(row * kCopied + i), kSymbols));
      batch.tokens.data<uint8_t>()[row * 2 * kCopied + i] = symbol;
      batch.tokens.data<uint8_t>()[row * 2 * kCopied + kCopied + i] = symbol;
      // Prediction t is the prediction of token t + 1.
      batch.mask.data<uint8_t>()[row * (2 * kCopied - 1) + kCopied + i - 1] = 1;
    }
  return batch;
}

int main() {
  AutoregressiveModelOptions options;
  options.encoder.layers = 2;
  options.encoder.heads = 4;
  options.encoder.head_dim = 16;
  options.encoder.feedforward = 128;
  options.encoder.attention = {{"linear", find_attention_kind("linear").default_options()}};
  options.encoder.pre_norm = true;
  options.head = OutputHead::categorical;
  options.vocabulary_size = kSymbols;
  options.max_length = 2 * kCopied - 1;
  AutoregressiveModel model(options);
  model.initialize(kSeed);

  Optimizer optimizer({.kind = "adamw", .weight_decay = 0.01, .clip_norm = 1}, model.parameters(),
                      model.undecayed_parameters());
  const uint64_t steps = 300;
  const double warmup_steps = 50;
  for (uint64_t step = 1; step <= steps; ++step) {
    const Tensor loss = model.compute_loss(make_batch(step), {.training = true, .seed = kSeed, .step = step});
    backward(loss);
    optimizer.step(3e-3 * std::min(1.0, static_cast<double>(step) / warmup_steps));
    if (step % 100 == 0) std::cout << "step " << step << "  loss " << loss.item() << "\n";
  }
  const auto scores = model.compute_scores(make_batch(steps + 1));
  std::cout << "accuracy " << scores.accuracy << "\n";
}
