// Checks that a training run has not diverged.
#pragma once

#include <string>

#include "models/layers/module.h"
#include "train/loop/run_state.h"

namespace tapeformer {

// The check_finite_…() functions throw DivergenceError if a value is not finite. The error message contains
// the step, the last checkpoint of the run, and advice on the config.

// The error message contains `examples`, a description of the training examples of the batch.
void check_finite_loss(double loss, int64_t step, const std::string& examples, const RunState& state);
void check_finite_grad_norm(double norm, int64_t step, const RunState& state);
void check_finite_weights(const NamedTensors& tensors, const RunState& state);

}  // namespace tapeformer
