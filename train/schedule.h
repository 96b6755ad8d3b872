// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "train/config/config.h"

namespace tapeformer {

// The factor by which a schedule multiplies the learning rate optimizer.lr. During the first `warmup_steps`
// steps, the factor rises linearly to 1. Afterwards, the factor depends on the kind of the schedule:
//
// - constant: 1.
// - step: starts at 1, and is multiplied by schedule.factor at each step in step_at.
// - cosine: falls from 1 to final_lr_ratio, the value after the last step (Loshchilov & Hutter 2017, one
//   cycle).
// - rsqrt: sqrt(max(warmup_steps, 1) / step), with steps counted from 1 (Vaswani et al. 2017, section 5.3).
// - plateau: starts at 1. If the evaluation loss does not improve for more than `patience` evaluations, the
//   factor is multiplied by schedule.factor, but does not fall below final_lr_ratio. A loss improves if it is
//   less than (1 - threshold) times the best loss. This is ReduceLROnPlateau of PyTorch with mode "min",
//   threshold_mode "rel" and cooldown 0.
class Schedule {
 public:
  Schedule(const ScheduleConfig& config, int64_t total_steps) : config_(config), total_steps_(total_steps) {}

  // Returns the factor for step `step`, where the first step has number 0.
  double factor(int64_t step) const;
  // Updates a plateau schedule with the loss of an evaluation. Other schedules ignore the loss.
  void observe_loss(double loss);

  // The state of a plateau schedule, which checkpoints contain.
  struct State {
    double plateau_factor = 1, best_loss = 1e300;
    int64_t non_improving_evaluation_count = 0;
  };
  State state;

 private:
  ScheduleConfig config_;
  int64_t total_steps_;
};

}  // namespace tapeformer
