#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapeformer {

double Schedule::factor(int64_t step) const {
  const int64_t warmup = config_.warmup_steps;
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (config_.kind == "step") {
    const auto drops =
        std::count_if(config_.step_at.begin(), config_.step_at.end(), [&](int64_t at) { return step >= at; });
    return std::pow(config_.factor, static_cast<double>(drops));
  }
  if (config_.kind == "cosine") {
    const auto span = static_cast<double>(std::max<int64_t>(total_steps_ - warmup, 1));
    const double done = std::min(static_cast<double>(step - warmup) / span, 1.0);
    return config_.final_lr_ratio +
           (1 - config_.final_lr_ratio) * 0.5 * (1 + std::cos(std::numbers::pi * done));
  }
  if (config_.kind == "rsqrt")
    return std::sqrt(static_cast<double>(std::max<int64_t>(warmup, 1)) / static_cast<double>(step + 1));
  return config_.kind == "plateau" ? state.plateau_factor : 1;
}

void Schedule::observe_loss(double loss) {
  if (config_.kind != "plateau") return;
  if (loss < state.best_loss * (1 - config_.threshold)) {
    state.best_loss = loss;
    state.non_improving_evaluation_count = 0;
  } else if (++state.non_improving_evaluation_count > config_.patience) {
    state.plateau_factor = std::max(state.plateau_factor * config_.factor, config_.final_lr_ratio);
    state.non_improving_evaluation_count = 0;
  }
}

}  // namespace tapeformer
