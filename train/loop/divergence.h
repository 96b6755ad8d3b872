// Checks that a training run has not diverged.
#pragma once

#include <string>

#include "models/layers/module.h"
#include "train/loop/run_state.h"

namespace tapeformer {

// Each function throws DivergenceError if a value is not finite. The message contains the step, the last
// checkpoint of the run, and advice on the config.

// `examples` names the training examples of the batch in the error message.
void check_finite_loss(double loss, int64_t step, const std::string& examples, const RunState& state);
void check_finite_grad_norm(double norm, int64_t step, const RunState& state);
void check_finite_weights(const NamedTensors& tensors, const RunState& state);

}  // namespace tapeformer
