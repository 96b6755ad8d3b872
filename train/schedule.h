// Learning-rate schedules: the factor on optimizer.lr at a step.
#pragma once

#include <cstdint>

#include "train/config/config.h"

namespace tapeformer {

// Warm-up rises linearly to 1 over warmup_steps; after it constant 1 step `factor` once more at every step
// listed in step_at cosine from 1 to final_lr_ratio at the last step (Loshchilov & Hutter 2017, one cycle)
// plateau `factor` once more whenever the evaluation loss has not improved for more than `patience`
// evaluations, down to final_lr_ratio at least: PyTorch's ReduceLROnPlateau with mode "min", threshold_mode
// "rel" and cooldown 0. An improved loss is below (1 - threshold) times the best.
class Schedule {
 public:
  Schedule(const ScheduleConfig& config, int64_t total_steps) : config_(config), total_(total_steps) {}

  // Factor of step 0, 1, ….
  double factor(int64_t step) const;
  // Tells a plateau schedule of an evaluation.
  void observe(double loss);

  // What a resumed run needs.
  struct State {
    double plateau_factor = 1, best_loss = 1e300;
    int64_t bad_evaluations = 0;
  };
  State state;

 private:
  ScheduleConfig config_;
  int64_t total_;
};

}  // namespace tapeformer
