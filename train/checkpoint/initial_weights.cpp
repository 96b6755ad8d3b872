#include "train/checkpoint/initial_weights.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "core/options/name_patterns.h"
#include "core/system/log.h"
#include "models/layers/low_rank.h"
#include "train/checkpoint/checkpoint.h"
#include "train/finite.h"

namespace tapeformer {
namespace {

constexpr const char* kKey = "model.init: ";

bool is_in(const std::vector<std::string>& modules, const std::string& parameter) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return parameter.starts_with(module + "."); });
}

// What happens to the tensors of a model and of a checkpoint.
struct TensorPlan {
  NamedTensors copied;                 // tensors of the model that get the values of the checkpoint
  std::vector<std::string> new_names;  // tensors of the model that keep their values
  std::vector<std::string> unused;     // tensors of the checkpoint that the model does not get
};

// Returns the pattern of a name, in which * stands for each number between two periods.
std::string replace_indices(const std::string& name) {
  std::string pattern;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    const std::string part = name.substr(begin, end - begin);
    const bool is_index = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (begin > 0 ? "." : "") + (is_index ? "*" : part);
    begin = end + 1;
  }
  return pattern;
}

// Returns the patterns of the names and the number of names of each, in the order of the names.
std::vector<std::pair<std::string, int64_t>> count_by_pattern(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const std::string& name : names) {
    const std::string pattern = replace_indices(name);
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const auto& entry) { return entry.first == pattern; });
    if (found == counts.end())
      counts.emplace_back(pattern, 1);
    else
      ++found->second;
  }
  return counts;
}

std::string describe_names(const char* what, const std::vector<std::string>& names) {
  if (names.empty()) return "";
  std::string text = concat_text(", ", names.size(), " ", what, " (");
  const char* separator = "";
  for (const auto& [pattern, count] : count_by_pattern(names)) {
    text += separator + (count > 1 ? concat_text(count, " ", pattern) : pattern);
    separator = ", ";
  }
  return text + ")";
}

// Returns a setting that permits the names, such as model.init_new = ["layers.*.norm1.bias"].
std::string make_setting(const std::string& key, const std::vector<std::string>& names) {
  std::string list;
  for (const auto& [pattern, count] : count_by_pattern(names))
    list += concat_text(list.empty() ? "\"" : ", \"", pattern, "\"");
  return key + " = [" + list + "]";
}

// Returns advice on the settings with which the tensors of the file would be accepted.
std::string make_advice(const SafetensorsFile& file, const NamedTensors& expected) {
  std::vector<std::string> unmatched, unused;
  std::set<std::string> names;
  for (const auto& [name, tensor] : expected) {
    names.insert(name);
    const auto found = file.entries().find(name);
    if (found == file.entries().end() || !(found->second.shape == tensor.shape())) unmatched.push_back(name);
  }
  for (const auto& [name, entry] : file.entries())
    if (!names.contains(name)) unused.push_back(name);
  std::string advice;
  if (!unmatched.empty())
    advice += "\n  " + make_setting("model.init_new", unmatched) + " starts tensors of the model anew";
  if (!unused.empty())
    advice += "\n  " + make_setting("model.init_unused", unused) + " leaves tensors of the checkpoint unused";
  return advice;
}

void check_weights(const SafetensorsFile& file, const NamedTensors& targets) {
  try {
    file.check_tensors(targets);
  } catch (const CheckpointError& error) {
    throw ConfigError(kKey + std::string(error.what()) + make_advice(file, targets));
  }
}

TensorPlan make_plan(const SafetensorsFile& file, const Config& config, const Module& model,
                     const std::vector<std::string>& new_modules) {
  const NamePatterns patterns("model.init_new", config.model.init_new);
  const NamePatterns unused_patterns("model.init_unused", config.model.init_unused);
  const auto is_new = [&](const std::string& name) {
    return is_in(new_modules, name) || patterns.matches(name);
  };
  TensorPlan plan;
  std::vector<std::string> names, left;
  std::set<std::string> copied;
  for (const auto& [name, tensor] : model.saved_tensors()) {
    if (is_adapter_tensor(name)) continue;
    names.push_back(name);
    if (is_new(name)) {
      plan.new_names.push_back(name);
    } else {
      plan.copied.emplace_back(name, tensor);
      copied.insert(name);
    }
  }
  for (const auto& [name, entry] : file.entries()) {
    if (copied.contains(name)) continue;
    left.push_back(name);
    if (is_new(name) || unused_patterns.matches(name)) plan.unused.push_back(name);
  }
  patterns.require_matches(names, "tensor of the model");
  unused_patterns.require_matches(left, "tensor of the checkpoint that the model does not get");
  return plan;
}

// Returns the tensors into which the checkpoint is loaded. A tensor without further use stands for each
// unused one.
NamedTensors list_targets(const SafetensorsFile& file, const TensorPlan& plan) {
  NamedTensors targets = plan.copied;
  for (const std::string& name : plan.unused) {
    const auto& entry = file.entries().at(name);
    targets.emplace_back(name, Tensor::empty(entry.shape, entry.dtype));
  }
  return targets;
}

// Warns of settings with which the weights compute another function than in their training, unless a training
// with a teacher is to learn that function.
void warn_of_other_settings(const Checkpoint& checkpoint, const Config& config) {
  const Config own = load_config(
      checkpoint.config_path(), {},
      {.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = ConfigPurpose::generation});
  if (own.model.type != config.model.type || !config.distill.teacher.empty()) return;
  for (const auto& [key, value] : find_keys_fixed_by_training(own, config))
    log_warning(kKey, "the weights are those of a training with ", key, " = ", value,
                ", and compute another function with ", format_config_value(config, key));
}

}  // namespace

std::string find_initial_checkpoint(const std::string& path) try {
  return find_checkpoint(path, false);
} catch (const CheckpointError& error) {
  throw ConfigError(kKey + std::string(error.what()));
}

void load_initial_weights(const Config& config, const Module& model,
                          const std::vector<std::string>& new_modules) {
  const Checkpoint checkpoint(find_initial_checkpoint(config.model.init));
  if (checkpoint.read_state().base)
    throw ConfigError(kKey + checkpoint.folder() +
                      ": the run has adapters; tapeformer merge adds them to the weights");
  const SafetensorsFile file = checkpoint.open_model_file();
  const TensorPlan plan = make_plan(file, config, model, new_modules);
  const NamedTensors targets = list_targets(file, plan);
  check_weights(file, targets);
  warn_of_other_settings(checkpoint, config);
  checkpoint.load_model(targets);
  check_finite(plan.copied, kKey + checkpoint.folder());
  log_info("weights initialised from ", checkpoint.folder(), ": ", plan.copied.size(), " tensors copied",
           describe_names("new", plan.new_names), describe_names("unused", plan.unused));
}

}  // namespace tapeformer
