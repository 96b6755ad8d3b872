// Checks that a training run has not diverged.
#pragma once

#include <string>

#include "models/layers/module.h"
#include "train/loop/run_state.h"

namespace tapeformer {

// Each function below throws DivergedError if a number is not finite. The message contains the step, the last
// checkpoint of the run, and advice on the config.

// Checks the loss of a batch. `examples` describes the training examples of the batch for the message.
void check_loss(double loss, int64_t step, const std::string& examples, const RunState& state);
void check_grad_norm(double norm, int64_t step, const RunState& state);
void check_weights(const NamedTensors& tensors, const RunState& state);

}  // namespace tapeformer
