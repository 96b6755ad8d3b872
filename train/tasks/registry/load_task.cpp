#include "train/tasks/registry/load_task.h"

#include "models/layers/adapted_layers.h"
#include "train/build.h"
#include "train/checkpoint/adapters.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/run_directory.h"
#include "train/distributed/processes.h"
#include "train/tasks/registry/make_task.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string describe_steps(const std::string& run_dir) {
  std::string text;
  for (const int64_t step : list_checkpoint_steps(run_dir))
    text += (text.empty() ? "" : ", ") + std::to_string(step);
  return text.empty() ? "none" : text;
}

fs::path find_checkpoint_folder(const RunChoice& choice) {
  fs::path path = fs::path(choice.path).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  std::error_code ignored;
  if (!fs::exists(path, ignored))
    throw CheckpointError(choice.path + ": no such run directory or checkpoint");
  if (path.filename() == kCheckpointFolderName) path = path.parent_path();
  if (choice.checkpoint_name == "latest") return find_checkpoint(path.string(), false);
  if (fs::exists(path / "model.safetensors", ignored))
    throw ConfigError(choice.path + ": expected a run directory with the checkpoint \"" +
                      choice.checkpoint_name + "\", found a checkpoint folder");
  if (const auto linked =
          choice.checkpoint_name == "best" ? resolve_checkpoint_link(path.string(), "best") : std::nullopt)
    return *linked;
  std::string name = choice.checkpoint_name;
  for (const int64_t step : list_checkpoint_steps(path.string()))
    if (name == std::to_string(step)) name = format_step_name(step);
  const fs::path named = path / kCheckpointFolderName / name;
  if (choice.checkpoint_name != "best" && choice.checkpoint_name.find('/') == std::string::npos &&
      fs::exists(named / "model.safetensors", ignored))
    return fs::canonical(named);
  throw CheckpointError(path.string() + ": no checkpoint \"" + choice.checkpoint_name + "\"; the steps are " +
                        describe_steps(path.string()));
}

// Reads the config of a checkpoint. Throws CheckpointError if the config is invalid, and ConfigError if the
// settings are.
Config read_config(const Checkpoint& checkpoint, const RunChoice& choice) {
  const auto read = [&](const std::vector<std::string>& settings, const std::string& device,
                        ConfigPurpose purpose) {
    return load_config(
        checkpoint.config_path(), settings,
        {.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = purpose, .device = device});
  };
  const bool has_settings = !choice.config_settings.empty();
  try {
    return read(choice.config_settings, has_settings ? choice.device.to_string() : "", choice.purpose);
  } catch (const ConfigError& error) {
    if (!has_settings) throw CheckpointError(error.what());
    try {
      // The config of a run can lack what a setting gives, such as data.path.
      read({}, "", ConfigPurpose::generation);
    } catch (const ConfigError& own_error) {
      throw CheckpointError(own_error.what());
    }
    throw;
  }
}

// Throws ConfigError if a setting would change the tokenizer, which the state of a training contains, or what
// the weights compute.
void check_settings(const Checkpoint& checkpoint, const Config& config, RunChoice choice,
                    bool has_tokenizer) {
  if (choice.config_settings.empty()) return;
  choice.config_settings.clear();
  choice.purpose = ConfigPurpose::generation;  // the run can lack what a setting gives, such as data.path
  const Config own = read_config(checkpoint, choice);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "\n") + problem; };
  for (const std::string& key : find_differing_keys(own, config))
    if (has_tokenizer && (key == "data.tokenizer" || key == "data.vocabulary" ||
                          key == "data.sentencepiece_model" || key == "data.tokenizer_file"))
      add(key + ": the run stores its tokenizer, so the value must be that of the run, " +
          format_config_value(own, key));
  for (const auto& [key, value] : find_keys_fixed_by_training(own, config))
    add(concat_text(key, ": the weights are those of a training with ", value, ", and do not fit ",
                    format_config_value(config, key)));
  if (!problems.empty()) throw ConfigError(problems);
}

int64_t count_elements(const Checkpoint& checkpoint) {
  int64_t elements = 0;
  const SafetensorsFile file = checkpoint.open_model_file();
  for (const auto& [name, entry] : file.entries()) elements += entry.shape.numel();
  return elements;
}

// Makes the task of a checkpoint, without its weights. The model can have at most twice the elements of
// the checkpoint and kAllowedElements more. A model with more elements is not built, because such a model
// could exhaust the memory. If a model of an allowed size does not match the checkpoint, load_model() reports
// the mismatched tensors.
std::unique_ptr<Task> make_limited_task(const Checkpoint& checkpoint, const Config& config,
                                        const TrainingState& state, const TaskEnvironment& environment) {
  constexpr int64_t kAllowedElements = int64_t{1} << 16;
  int64_t elements = count_elements(checkpoint);
  if (state.base) elements += count_elements(find_base(checkpoint, state));
  try {
    // Layers have projections that some attention kinds do not use and that checkpoints do not contain.
    const ParameterLimitScope limit(2 * elements + kAllowedElements);
    return restore_task(config, environment, state, checkpoint.state_path());
  } catch (const ParameterLimitError& error) {
    checkpoint.verify_model_checksum();  // throws a more specific error if the file is damaged
    throw CheckpointError(
        concat_text(checkpoint.folder(), ": config.toml or state.json does not match the tensors: with ",
                    error.what(), " the model has more parameters than model.safetensors, ", elements));
  }
}

// Makes the task of a checkpoint, loads its weights, adds the adapters to the weights, and sets the precision
// of matrix products on the device.
LoadedTask load(const Checkpoint& checkpoint, const Config& config, const RunChoice& choice) {
  Communicator& processes = *init_process_group().communicator;
  const TrainingState state = checkpoint.read_state();
  check_settings(checkpoint, config, choice, !state.is_converted || !state.task_json.empty());
  LoadedTask loaded;
  loaded.checkpoint_folder = checkpoint.folder();
  loaded.step = state.step;
  loaded.task = make_limited_task(checkpoint, config, state, {choice.data, choice.device, processes});
  set_precision(config.run, choice.device);
  load_weights(checkpoint, state, config, loaded.task->model());
  merge_adapters(loaded.task->model());
  return loaded;
}

}  // namespace

fs::path LoadedTask::samples_folder() const {
  const fs::path folder = find_run_folder(checkpoint_folder);
  return folder.empty() ? folder : folder / "samples";
}

LoadedTask load_task(const RunChoice& choice) {
  const Checkpoint checkpoint(find_checkpoint_folder(choice).string());
  checkpoint.verify_config_checksum();
  const Config config = read_config(checkpoint, choice);
  try {
    return load(checkpoint, config, choice);
  } catch (const CheckpointError& error) {
    if (choice.config_settings.empty()) throw;
    checkpoint.verify_model_checksum();  // if the files are intact, the settings are the cause
    throw ConfigError(concat_text("the settings do not match the weights of the checkpoint: ", error.what()));
  }
}

}  // namespace tapeformer
