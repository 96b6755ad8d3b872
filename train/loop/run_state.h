// The state of a training run: completed steps, the last checkpoint and the last evaluation.
#pragma once

#include <cstdint>
#include <limits>

namespace tapeformer {

struct RunState {
  int64_t step = 0;  // number of completed steps
  int64_t total_steps = 0;
  int64_t last_checkpoint_step = -1;  // -1: no checkpoint
  int64_t last_evaluation_step = -1;  // -1: no evaluation
  // The smallest TaskEvaluation::selection_metric so far.
  double best_loss = std::numeric_limits<double>::infinity();
  double training_seconds = 0;  // without evaluations
};

}  // namespace tapeformer
