#include "train/checkpoint/initial_weights.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/earlier_checkpoint.h"
#include "train/finite.h"

namespace tapeformer {
namespace {

constexpr const char* kKey = "model.init: ";

bool is_in(const std::vector<std::string>& modules, const std::string& parameter) {
  return std::any_of(modules.begin(), modules.end(),
                     [&](const std::string& module) { return parameter.starts_with(module + "."); });
}

void check_weights(const SafetensorsFile& file, const NamedTensorList& expected) {
  try {
    file.check_tensors(expected);
  } catch (const CheckpointError& error) {
    throw ConfigError(kKey + std::string(error.what()));
  }
}

// Returns the tensors of a checkpoint for the tensors of a model. A new tensor of the shape in the checkpoint
// stands for each tensor of `new_modules`.
NamedTensors list_targets(const SafetensorsFile& file, const Module& model,
                          const std::vector<std::string>& new_modules) {
  NamedTensors targets;
  for (const auto& [name, tensor] : model.saved_tensors())
    if (!is_in(new_modules, name)) targets.emplace_back(name, tensor);
  for (const auto& [name, entry] : file.entries())
    if (is_in(new_modules, name)) targets.emplace_back(name, Tensor::empty(entry.shape, entry.dtype));
  return targets;
}

// Warns of settings with which the weights compute another function than in their training.
void warn_of_other_settings(const Checkpoint& checkpoint, const Config& config) {
  const Config own = load_config(
      checkpoint.config_path(), {},
      {.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = ConfigPurpose::generation});
  if (own.model.type != config.model.type) return;
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
  std::string new_names;
  for (const auto& [name, tensor] : model.saved_tensors())
    if (is_in(new_modules, name)) new_names += (new_names.empty() ? "" : ", ") + name;
  load_or_name_earlier(checkpoint.folder(), CheckpointUse::inference, [&] {
    const SafetensorsFile file = checkpoint.open_model_file();
    const NamedTensors tensors = list_targets(file, model, new_modules);
    check_weights(file, tensors);
    warn_of_other_settings(checkpoint, config);
    checkpoint.load_model(tensors);
    check_finite(tensors, kKey + checkpoint.folder());
  });
  log_info("weights initialised from ", checkpoint.folder(),
           new_names.empty() ? "" : ", except those of the tokens, which start anew: " + new_names);
}

}  // namespace tapeformer
