// Learning-rate schedules. A schedule multiplies the learning rate by a factor that rises linearly to 1
// during the warm-up. Afterwards, the kind of the schedule determines the factor.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/options/options.h"

namespace tapeformer {

struct ScheduleConfig {
  std::string kind = "constant";
  int64_t warmup_steps = 0;
  OptionValues options = {};  // options that are not set have the defaults of the kind
};

// The position of a step after the warm-up. The first step of the training has number 0.
struct ScheduleTime {
  int64_t step, warmup_steps, total_steps;
};

// What a schedule has learned from evaluations. Checkpoints contain it.
struct ScheduleState {
  double plateau_factor = 1, best_loss = 1e300;
  int64_t non_improving_evaluation_count = 0;
};

struct ScheduleKind {
  std::string name;
  std::string help;  // a one-line description
  std::vector<OptionSpec> options = {};
  // Returns the factor of a step after the warm-up. `options` has a value for each option of the kind.
  std::function<double(const OptionValues& options, const ScheduleTime& time, const ScheduleState& state)>
      compute_factor;
  // Updates the state with the loss of an evaluation. Empty if the kind ignores evaluations.
  std::function<void(const OptionValues& options, double loss, ScheduleState& state)> observe_loss = nullptr;
  // Returns invalid options with their problems. Optional.
  std::function<std::vector<std::pair<std::string, std::string>>(const OptionValues& options)> find_problems =
      nullptr;
  bool needs_warmup = false;
};

// See Registry in core/options/part.h. The built-in kinds:
// - constant: 1.
// - step: starts at 1, and is multiplied by `factor` at each step in step_at.
// - cosine: falls from 1 to final_lr_ratio, the value after the last step (Loshchilov & Hutter 2017, one
//   cycle).
// - plateau: starts at 1. If the evaluation loss does not improve for more than `patience` evaluations, the
//   factor is multiplied by `factor`, but does not fall below final_lr_ratio. A loss improves if it is less
//   than (1 - threshold) times the best loss. This is ReduceLROnPlateau of PyTorch with mode "min",
//   threshold_mode "rel" and cooldown 0.
// - rsqrt: sqrt(warmup_steps / step), with steps counted from 1 (Vaswani et al. 2017, section 5.3).
void register_schedule_kind(ScheduleKind kind);
const std::deque<ScheduleKind>& list_schedule_kinds();
const ScheduleKind& find_schedule_kind(const std::string& name);

class Schedule {
 public:
  // Throws ConfigError for an unknown kind, and std::invalid_argument for an option that the kind does not
  // have.
  Schedule(const ScheduleConfig& config, int64_t total_steps);

  // Returns the factor for step `step`, where the first step has number 0.
  double factor(int64_t step) const;
  // Updates the state with the loss of an evaluation, which only a plateau schedule uses.
  void observe_loss(double loss);

  ScheduleState state;

 private:
  const ScheduleKind& kind_;
  OptionValues options_;
  int64_t warmup_steps_, total_steps_;
};

}  // namespace tapeformer
