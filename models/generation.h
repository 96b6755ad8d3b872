// Generation of sequences by an autoregressive model.
#pragma once

#include "models/autoregressive_model.h"
#include "ops/logistic_mixture.h"

namespace tapeformer {

enum class GenerationMode {
  recurrent,  // one step of the recurrent form per token; requires a recurrent attention kind
  recompute   // a forward pass over the whole prefix per token; works with every causal attention kind
};

struct GenerationOptions {
  GenerationMode mode = GenerationMode::recurrent;
  uint64_t seed = 0;
  int64_t first_sequence = 0;  // number of the first sequence, so that draws do not depend on batches
  SamplingScale scale = SamplingScale::elu;
  bool greedy = false;  // categorical head: take the most probable token
  bool graphs = true;   // recurrent mode on CUDA devices: capture a step in a CUDA graph and replay it
};

// Continues `prefix`, (batch, prefix length) uint8, to (batch, length) uint8 on the CPU. The random numbers
// for token t + 1 of sequence s depend only on (seed, s, t). Throws ShapeError if the prefix is empty or
// `length` exceeds the maximum length of the model. Throws DivergedError if logits are not finite.
Tensor generate(const AutoregressiveModel& model, const Tensor& prefix, int64_t length,
                const GenerationOptions& options);

}  // namespace tapeformer
