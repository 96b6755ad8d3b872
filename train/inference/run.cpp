#include "train/inference/run.h"

#include "train/build.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/earlier_checkpoint.h"
#include "train/distributed/processes.h"
#include "train/finite.h"
#include "train/tasks/text/description.h"

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
  const fs::path named = path / kCheckpointFolderName / choice.checkpoint_name;
  if (choice.checkpoint_name != "best" && choice.checkpoint_name.find('/') == std::string::npos &&
      fs::exists(named / "model.safetensors", ignored))
    return fs::canonical(named);
  throw CheckpointError(path.string() + ": no checkpoint \"" + choice.checkpoint_name + "\"; the steps are " +
                        describe_steps(path.string()));
}

// Reads the config of the checkpoint, with and without the settings in `choice.config_settings`. Throws
// CheckpointError if the config is invalid, and ConfigError if the settings are invalid.
void read_configs(const RunChoice& choice, FoundRun& found) {
  const Checkpoint checkpoint(found.checkpoint_folder.string());
  checkpoint.verify_config_checksum();
  const std::string path = checkpoint.config_path();
  ConfigLoadOptions options{.unused_key_policy = UnusedKeyPolicy::ignore_in_file, .purpose = choice.purpose};
  try {
    found.training_config = load_config(path, {}, make_attention_catalogue(), options);
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  options.device = choice.device.to_string();
  found.config = choice.config_settings.empty()
                     ? found.training_config
                     : load_config(path, choice.config_settings, make_attention_catalogue(), options);
}

// Returns load(found.config). If found.config does not match the weights of the checkpoint but
// found.training_config does, the cause is a setting in RunChoice::config_settings. In this case,
// load_fitting() throws ConfigError.
template <class Load>
auto load_fitting(const FoundRun& found, Load&& load) {
  return load_or_name_earlier(found.checkpoint_folder.string(), CheckpointUse::inference, [&] {
    try {
      return load(found.config);
    } catch (const CheckpointError& error) {
      if (find_differing_keys(found.config, found.training_config).empty()) throw;
      load(found.training_config);
      throw ConfigError(
          concat_text("the settings do not match the weights of the checkpoint: ", error.what()));
    }
  });
}

// Returns the run directory of a checkpoint, or "" for a checkpoint outside of a run directory.
fs::path find_run_folder(const fs::path& checkpoint) {
  const fs::path parent = checkpoint.parent_path();
  return parent.filename() == kCheckpointFolderName ? parent.parent_path() : fs::path();
}

// Makes the model of a run, loads its weights, and sets the precision of matrix products on `device`. Throws
// CheckpointError if the names or shapes of the tensors do not match, and DivergenceError if a weight is not
// finite.
template <class Run, class Make>
void load_weights(Run& run, Device device, const Make& make) {
  // The model can have at most kAllowedElements more elements than the checkpoint. A model with more elements
  // is not built, because such a model could exhaust the memory. If a model of an allowed size does not match
  // the checkpoint, load_model() reports the mismatched tensors.
  constexpr int64_t kAllowedElements = int64_t{1} << 16;
  const Checkpoint checkpoint(run.checkpoint_folder.string());
  int64_t elements = 0;
  const SafetensorsFile file = checkpoint.open_model_file();
  for (const auto& [name, entry] : file.entries()) elements += entry.shape.numel();
  try {
    const ParameterLimitScope limit(elements + kAllowedElements);
    run.model = make();
  } catch (const ParameterLimitError& error) {
    checkpoint.verify_model_checksum();  // throws a more specific error if the file is damaged
    throw CheckpointError(
        concat_text(checkpoint.folder(), ": config.toml or state.json does not match the tensors: with ",
                    error.what(), " the model has more parameters than model.safetensors, ", elements));
  }
  set_precision(run.config.run, device);
  // Training and inference store their algorithm choices in different files, so that inference does not
  // replace the choices of a training in progress.
  if (const fs::path folder = find_run_folder(run.checkpoint_folder); !folder.empty())
    run.product_tuning_scope =
        start_product_tuning(run.config.run, device, folder, "inference-product-algorithms.txt",
                             init_process_group().communicator->rank());
  checkpoint.load_model(run.model->saved_tensors());
  check_finite(run.model->saved_tensors(), run.checkpoint_folder.string());
}

}  // namespace

fs::path LoadedRun::samples_folder() const {
  const fs::path folder = find_run_folder(checkpoint_folder);
  return folder.empty() ? folder : folder / "samples";
}

FoundRun find_run(const RunChoice& choice) {
  FoundRun found;
  found.device = choice.device;
  found.data_dir = choice.data_dir;
  found.checkpoint_folder = find_checkpoint_folder(choice);
  load_or_name_earlier(found.checkpoint_folder.string(), CheckpointUse::inference,
                       [&] { read_configs(choice, found); });
  return found;
}

LoadedRun load_run(const FoundRun& found) {
  if (found.is_speech())
    throw ConfigError(found.checkpoint_folder.string() +
                      ": expected a model of images or sequences, found a speech "
                      "model, which \"eval\" and \"transcribe\" take");
  if (predicts_one_result_per_example(found.config))
    throw ConfigError(concat_text(
        found.checkpoint_folder.string(), ": expected a model of images or sequences, found a ",
        found.config.model.type == "set" ? "model of sets" : "classifier", ", which \"eval\" takes"));
  return load_fitting(found, [&](const Config& config) {
    LoadedRun run;
    run.config = config;
    run.checkpoint_folder = found.checkpoint_folder;
    const Checkpoint checkpoint(run.checkpoint_folder.string());
    const TrainingState state = checkpoint.read_state();
    run.step = state.step;
    if (is_text_dataset(config))
      run.tokenizer =
          state.is_converted
              ? make_tokenizer(config, found.data_dir)
              : parse_tokenizer(state.task_json, checkpoint.state_path(),
                                parse_unknown_characters(config.data.get<std::string>("unknown_characters")));
    run.dataset_info = get_dataset_info(run.config, run.tokenizer);
    load_weights(run, found.device, [&] { return make_model(config, run.dataset_info, found.device); });
    return run;
  });
}

LoadedRun load_run(const RunChoice& choice) {
  return load_run(find_run(choice));
}

LoadedExampleRun load_example_run(const FoundRun& found) {
  if (!predicts_one_result_per_example(found.config))
    throw ConfigError(found.checkpoint_folder.string() +
                      ": expected a classifier or a model of sets, found a model of type \"" +
                      found.config.model.type + "\"");
  return load_fitting(found, [&](const Config& config) {
    LoadedExampleRun run;
    run.config = config;
    run.checkpoint_folder = found.checkpoint_folder;
    const DatasetInfo data = get_dataset_info(config);
    load_weights(run, found.device, [&] { return make_example_model(config, data, found.device); });
    return run;
  });
}

LoadedSpeechRun load_speech_run(const FoundRun& found) {
  if (!found.is_speech())
    throw ConfigError(found.checkpoint_folder.string() + ": expected a speech model, found a model of " +
                      found.config.data.dataset);
  return load_fitting(found, [&](const Config& config) {
    LoadedSpeechRun run;
    run.config = config;
    run.checkpoint_folder = found.checkpoint_folder;
    const Checkpoint checkpoint(run.checkpoint_folder.string());
    run.metadata = parse_speech_metadata(checkpoint.read_state().task_json, checkpoint.state_path());
    load_weights(run, found.device, [&] { return make_speech_model(config, run.metadata, found.device); });
    return run;
  });
}

}  // namespace tapeformer
