// Drawing sequences from an autoregressive model.
#pragma once

#include "models/autoregressive_model.h"
#include "ops/logistic_mixture.h"

namespace tapeformer {

enum class GenerationMode {
  recurrent,  // one step of the recurrent form per token
  recompute   // the whole prefix again for every token: works with every attention kind, the paper's softmax
              // baseline
};

struct GenerationOptions {
  GenerationMode mode = GenerationMode::recurrent;
  uint64_t seed = 0;
  int64_t first_sequence =
      0;  // number of the batch's first sequence: draws do not depend on how batches are cut
  SamplingScale scale = SamplingScale::elu;
  bool greedy = false;  // categorical head: the most probable token
  bool graphs = true;   // recurrent on a CUDA device: a position's launches are recorded once and repeated
};

// Continues prefix (batch, given) uint8, given >= 1, to (batch, length) uint8. Token t + 1 of sequence s is
// drawn from elements that depend on (seed, s, t) only. Throws ShapeError if the prefix is empty or `length`
// exceeds the model's maximum length. Throws DivergedError if logits are not finite.
Tensor generate(const AutoregressiveModel& model, const Tensor& prefix, int64_t length,
                const GenerationOptions& options);

}  // namespace tapeformer
