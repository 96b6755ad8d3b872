// The command "tapeformer merge": adds the adapters of a run to the weights of its base.
#include "core/system/files.h"
#include "train/build.h"
#include "train/checkpoint/peft_files.h"
#include "train/checkpoint/source_facts.h"
#include "train/cli/commands.h"
#include "train/cli/pretrained/new_path.h"
#include "train/cli/run_options.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Returns the config of a run with merged weights.
Config make_merged_config(Config config, const std::string& name) {
  config.run.name = name;
  config.lora = {};
  config.train.freeze = {};
  config.model.init.clear();
  config.model.init_new = config.model.init_unused = {};
  config.model.init_tokens = ModelConfig().init_tokens;
  return config;
}

void write_merged_run(const LoadedTask& loaded, const fs::path& run) {
  CheckpointContents contents;
  for (const auto& [name, tensor] : loaded.task->model().saved_tensors())
    contents.model_tensors[name] = tensor;
  contents.state = {.step = loaded.step, .is_converted = true, .task_json = loaded.task->metadata_json()};
  contents.config_toml = to_toml(make_merged_config(loaded.config(), run.filename().string()));
  write_new_path(run, [&](const fs::path& folder) {
    fs::create_directory(folder);
    save_checkpoint(folder.string(), contents);
    replace_file((folder / kConfigFileName).string(), contents.config_toml);
    write_source_facts(Folder(folder.string()), read_source_facts(loaded.checkpoint_folder));
  });
}

}  // namespace

CommandSpec make_merge_spec(const Arguments& /*words*/) {
  return {.summary = "Writes a run without adapters, to whose weights the adapters of a run are added.",
          .positionals = {make_run_argument(), {"NEW", "folder of the new run"}},
          .options = {make_checkpoint_option(),
                      {.name = "peft",
                       .default_value = false,
                       .help = "write the adapters without the weights, in the files of the package PEFT"}},
          .default_device = "cpu"};
}

int run_merge(const CommandLine& line) {
  const bool is_run = !line.options.get<bool>("peft");
  const fs::path path =
      is_run ? check_new_run("NEW", line.positionals[1]) : check_new_path("NEW", line.positionals[1]);
  const LoadedTask loaded = load_task(line, ConfigPurpose::generation);
  if (!has_adapters(loaded.config()))
    throw ConfigError(loaded.checkpoint_folder.string() + ": the run has no adapters");
  if (is_run)
    write_merged_run(loaded, path);
  else
    write_new_path(path, [&](const fs::path& folder) {
      write_peft_files(Checkpoint(loaded.checkpoint_folder.string()), loaded.config(), folder);
    });
  print_report(Report()
                   .add(is_run ? "run" : "folder", path.string())
                   .add("checkpoint", loaded.checkpoint_folder.string())
                   .add("parameters", count_parameters(loaded.task->model())),
               line.common_options);
  return 0;
}

}  // namespace tapeformer
