// Checks that a training run has not diverged.
#pragma once

#include <string>

#include "models/layers/module.h"
#include "train/loop/run_state.h"

namespace tapeformer {

// The functions below check the loss of a batch, the norm of the gradients, and tensors such as weights. Each
// function throws DivergenceError if a value is not finite. The message contains the number of steps, the
// last checkpoint of the run, and advice on the config.

// Throws DivergenceError if the loss of a batch is not finite. `examples` names the training examples of the
// batch in the error message.
void check_finite_loss(double loss, int64_t step, const std::string& examples, const RunState& state);
void check_finite_grad_norm(double norm, int64_t step, const RunState& state);
void check_finite_weights(const NamedTensors& tensors, const RunState& state);

}  // namespace tapeformer
