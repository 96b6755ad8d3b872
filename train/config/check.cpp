#include "train/config/check.h"

#include <algorithm>

#include "core/base/errors.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Require = std::function<void(bool, const std::string&, const std::string&)>;

void check_data(const Config& config, const Require& require) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  const std::vector<std::string>& types = set.model_types;
  require(std::find(types.begin(), types.end(), config.model.type) != types.end(), "model.type",
          "data set " + quote_toml_string(set.name) + " needs type " + quote_toml_string(types.front()) +
              (types.size() > 1 ? " or " + quote_toml_string(types.back()) : "") + ", got " +
              quote_toml_string(config.model.type));
  if (set.find_problems)
    for (const auto& [option, problem] : set.find_problems(config.data.all_options()))
      require(false, "data." + option, problem);
  require(set.type == DatasetType::images || config.model.positions != "grid", "model.positions",
          "\"grid\" needs a data set of images");
  require(config.model.type != "speech" || config.model.positions != "axial", "model.positions",
          "\"axial\" needs a model of type \"image\" or \"sequence\"");
}

}  // namespace

void check_config(const Config& config, const AttentionCatalogue& catalogue,
                  const std::function<ConfigPosition(const std::string&)>& find_position,
                  std::vector<ConfigProblem>& problems) {
  const auto require = [&](bool condition, const std::string& name, const std::string& message) {
    if (!condition) problems.push_back({find_position(name), name + ": " + message});
  };
  const auto& [run, data, model, attention, optimizer, schedule, train] = config;

  require(train.steps == 0 || train.epochs == 0, "train.epochs",
          "both train.steps and train.epochs are set, expected exactly one");
  require(train.steps > 0 || train.epochs > 0, "train.steps",
          "neither train.steps nor train.epochs is set, expected one above 0");

  check_data(config, require);

  if (catalogue.find_model_problems)
    for (const auto& [key, problem] : catalogue.find_model_problems(config)) require(false, key, problem);

  const auto clips_values = optimizer.options.values_by_name().contains("clip_value");
  require(optimizer.clip_norm == 0 || !clips_values, "optimizer.clip_value",
          "both clip_norm and clip_value are set, expected at most one");
  const ScheduleKind& kind = find_schedule_kind(schedule.kind);
  require(!kind.needs_warmup || schedule.warmup_steps > 0, "schedule.warmup_steps",
          "schedule " + quote_toml_string(kind.name) +
              " decays from the end of the warm-up, expected at least 1");
  if (kind.find_problems)
    for (const auto& [option, problem] : kind.find_problems(complete_options(kind.options, schedule.options)))
      require(false, "schedule." + option, problem);
  require(!kind.observe_loss || train.eval_every > 0 || train.eval_epochs > 0, "schedule.kind",
          quote_toml_string(kind.name) + " needs evaluations: set train.eval_every or train.eval_epochs");
}

}  // namespace tapeformer
