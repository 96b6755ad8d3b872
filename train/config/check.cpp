#include "train/config/check.h"

#include <algorithm>

#include "core/base/errors.h"
#include "train/config/option_names.h"
#include "train/config/value.h"

namespace tapeformer {
namespace {

using Require = std::function<void(bool, const std::string&, const std::string&)>;

void check_data(const Config& config, const Require& require) {
  const DatasetKind& set = find_dataset_kind(config.data.dataset);
  const std::vector<std::string>& types = set.model_types;
  require(is_listed(types, config.model.type) || is_listed(types, find_model_kind(config.model.type).data_of),
          "model.type",
          "data set " + quote_toml_string(set.name) + " needs type " + quote_toml_string(types.front()) +
              (types.size() > 1 ? " or " + quote_toml_string(types.back()) : "") + ", got " +
              quote_toml_string(config.model.type));
  if (set.find_problems)
    for (const auto& [option, problem] : set.find_problems(config.data.all_options()))
      require(false, "data." + option, problem);
}

}  // namespace

AttentionPattern make_attention_pattern(const Config& config) {
  AttentionPattern pattern;
  for (const std::string& kind : config.model.attention) {
    const auto table = config.attention.find(kind);
    pattern.push_back({kind, table == config.attention.end() ? find_attention_kind(kind).default_options()
                                                             : table->second});
  }
  return pattern;
}

std::vector<KeyProblem> make_memory_problem(const AttentionPattern& attention, const std::string& needs) {
  for (const AttentionLayerChoice& choice : attention) {
    const SegmentMemorySize size = find_attention_kind(choice.kind).get_segment_memory_size(choice.options);
    const std::string table = has_several_kinds(attention) ? "attention." + choice.kind : "attention";
    if (size.stores_state) return {{table + ".carry_state", needs + "; expected false otherwise"}};
    if (size.token_span() > 0)
      return {{table + ".memory",
               concat_text("a memory of ", size.token_span(), " tokens ", needs, "; expected 0 otherwise")}};
  }
  return {};
}

std::vector<KeyProblem> find_model_problems(const Config& config) {
  const ModelKind& kind = find_model_kind(config.model.type);
  const AttentionPattern attention = make_attention_pattern(config);
  std::vector<KeyProblem> problems;
  if (kind.find_problems)
    for (const OptionProblem& problem : kind.find_problems(config.model.all_options(), attention))
      problems.push_back(make_key_problem(problem));
  if (config.model.has("positions") && config.model.get<std::string>("positions") == "grid" &&
      find_dataset_kind(config.data.dataset).type != DatasetType::images)
    problems.push_back({"model.positions", "\"grid\" needs a data set of images"});
  if (!config.data.has("streams") || !config.data.get<bool>("streams"))
    for (KeyProblem& problem :
         make_memory_problem(attention, "needs the consecutive segments of a text, data.streams = true"))
      problems.push_back(std::move(problem));
  return problems;
}

void check_config(const Config& config, bool check_model,
                  const std::function<ConfigPosition(const std::string&)>& find_position,
                  const std::function<bool(const std::string&)>& is_used,
                  std::vector<ConfigProblem>& problems) {
  const auto require = [&](bool condition, const std::string& name, const std::string& message) {
    if (!condition) problems.push_back({find_position(name), name + ": " + message});
  };
  const auto& [run, data, model, attention, optimizer, schedule, train, lora, distill] = config;

  require(train.steps == 0 || train.epochs == 0, "train.epochs",
          "both train.steps and train.epochs are set, expected exactly one");
  require(train.steps > 0 || train.epochs > 0, "train.steps",
          "neither train.steps nor train.epochs is set, expected one above 0");

  const auto require_if_used = [&](bool condition, const std::string& name, const std::string& message) {
    require(condition || !is_used(name), name, message);
  };
  check_data(config, require_if_used);
  require_if_used(lora.rank == 0 || !model.init.empty(), "lora.rank",
                  "adapters extend the weights of model.init, which is empty");

  if (check_model)
    for (const auto& [key, problem] : find_model_problems(config)) require_if_used(false, key, problem);

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
