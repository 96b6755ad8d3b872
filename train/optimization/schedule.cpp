#include "train/optimization/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/options/part.h"

namespace tapeformer {
namespace {

OptionSpec make_drop_factor_option() {
  return {
      .name = "factor", .default_value = 0.1, .help = "factor of each drop of the rate", .min = 0, .max = 1};
}

OptionSpec make_final_ratio_option() {
  return {.name = "final_lr_ratio",
          .default_value = 0.0,
          .help = "lowest rate relative to lr",
          .min = 0,
          .max = 1};
}

ScheduleKind make_constant_schedule() {
  return {
      .name = "constant",
      .help = "the same rate in all steps",
      .compute_factor = [](const OptionValues&, const ScheduleTime&, const ScheduleState&) { return 1.0; }};
}

ScheduleKind make_step_schedule() {
  using Steps = std::vector<int64_t>;
  return {
      .name = "step",
      .help = "drops at given steps",
      .options = {{.name = "step_at",
                   .default_value = Steps{},
                   .help = "steps at which the rate is multiplied by factor",
                   .min = 1},
                  make_drop_factor_option()},
      .compute_factor =
          [](const OptionValues& options, const ScheduleTime& time, const ScheduleState&) {
            const auto& steps = options.get<Steps>("step_at");
            const auto drops =
                std::count_if(steps.begin(), steps.end(), [&](int64_t at) { return time.step >= at; });
            return std::pow(options.get<double>("factor"), static_cast<double>(drops));
          },
      .find_problems = [](const OptionValues& options) -> std::vector<std::pair<std::string, std::string>> {
        const auto& steps = options.get<Steps>("step_at");
        if (steps.empty()) return {{"step_at", "schedule \"step\" needs at least one step"}};
        if (std::is_sorted(steps.begin(), steps.end(), std::less_equal<>())) return {};
        return {{"step_at", "expected increasing steps"}};
      }};
}

ScheduleKind make_cosine_schedule() {
  return {.name = "cosine",
          .help = "falls like half a cosine to the last step",
          .options = {make_final_ratio_option()},
          .compute_factor = [](const OptionValues& options, const ScheduleTime& time, const ScheduleState&) {
            const auto span = static_cast<double>(std::max<int64_t>(time.total_steps - time.warmup_steps, 1));
            const double done = std::min(static_cast<double>(time.step - time.warmup_steps) / span, 1.0);
            const auto last = options.get<double>("final_lr_ratio");
            return last + (1 - last) * 0.5 * (1 + std::cos(std::numbers::pi * done));
          }};
}

ScheduleKind make_plateau_schedule() {
  return {.name = "plateau",
          .help = "drops when the evaluations stop to improve",
          .options = {make_drop_factor_option(),
                      make_final_ratio_option(),
                      {.name = "patience",
                       .default_value = int64_t{10},
                       .help = "number of successive evaluations without improvement before the rate drops",
                       .min = 0},
                      {.name = "threshold",
                       .default_value = 1e-4,
                       .help = "smallest relative decrease of the loss that counts as an improvement",
                       .min = 0,
                       .max = 1}},
          .compute_factor = [](const OptionValues&, const ScheduleTime&,
                               const ScheduleState& state) { return state.plateau_factor; },
          .observe_loss =
              [](const OptionValues& options, double loss, ScheduleState& state) {
                if (loss < state.best_loss * (1 - options.get<double>("threshold"))) {
                  state.best_loss = loss;
                  state.non_improving_evaluation_count = 0;
                } else if (++state.non_improving_evaluation_count > options.get<int64_t>("patience")) {
                  state.plateau_factor = std::max(state.plateau_factor * options.get<double>("factor"),
                                                  options.get<double>("final_lr_ratio"));
                  state.non_improving_evaluation_count = 0;
                }
              }};
}

ScheduleKind make_rsqrt_schedule() {
  return {.name = "rsqrt",
          .help = "falls with the square root of the step after the warm-up",
          .compute_factor =
              [](const OptionValues&, const ScheduleTime& time, const ScheduleState&) {
                return std::sqrt(static_cast<double>(std::max<int64_t>(time.warmup_steps, 1)) /
                                 static_cast<double>(time.step + 1));
              },
          .needs_warmup = true};
}

Registry<ScheduleKind>& schedule_registry() {
  static auto& kinds = *new Registry<ScheduleKind>(
      "schedule", {make_constant_schedule(), make_step_schedule(), make_cosine_schedule(),
                   make_plateau_schedule(), make_rsqrt_schedule()});
  return kinds;
}

}  // namespace

void register_schedule_kind(ScheduleKind kind) {
  schedule_registry().add(std::move(kind));
}

const std::deque<ScheduleKind>& list_schedule_kinds() {
  return schedule_registry().list();
}

const ScheduleKind& find_schedule_kind(const std::string& name) {
  return schedule_registry().find(name);
}

Schedule::Schedule(const ScheduleConfig& config, int64_t total_steps)
    : kind_(find_schedule_kind(config.kind)),
      options_(complete_options(kind_.options, config.options)),
      warmup_steps_(config.warmup_steps),
      total_steps_(total_steps) {}

double Schedule::factor(int64_t step) const {
  if (step < warmup_steps_) return static_cast<double>(step + 1) / static_cast<double>(warmup_steps_);
  return kind_.compute_factor(options_, {step, warmup_steps_, total_steps_}, state);
}

void Schedule::observe_loss(double loss) {
  if (kind_.observe_loss) kind_.observe_loss(options_, loss, state);
}

}  // namespace tapeformer
