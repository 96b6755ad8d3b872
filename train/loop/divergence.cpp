#include "train/loop/divergence.h"

#include <cmath>

#include "core/base/errors.h"
#include "train/finite.h"

namespace tapeformer {
namespace {

std::string make_advice(const RunState& state) {
  return (state.last_checkpoint_step >= 0
              ? concat_text("; the checkpoint of step ", state.last_checkpoint_step, " is kept")
              : std::string("; the run has no checkpoint")) +
         ". Lower optimizer.lr, add schedule.warmup_steps or set optimizer.clip_norm.";
}

const char* format_number(double number) {
  return std::isnan(number) ? "not a number" : "infinite";
}

}  // namespace

void check_finite_loss(double loss, int64_t step, const std::string& examples, const RunState& state) {
  if (std::isfinite(loss)) return;
  throw DivergenceError(concat_text("the loss is ", format_number(loss), " at step ", step,
                                    ", training examples ", examples, make_advice(state)));
}

void check_finite_grad_norm(double norm, int64_t step, const RunState& state) {
  if (std::isfinite(norm)) return;
  throw DivergenceError(concat_text("the norm of the gradients is ", format_number(norm), " at step ", step,
                                    make_advice(state)));
}

void check_finite_weights(const NamedTensors& tensors, const RunState& state) {
  if (const auto found = find_non_finite(tensors))
    throw DivergenceError(concat_text(*found, " after ", state.step, " steps", make_advice(state)));
}

}  // namespace tapeformer
