// The command "tapeformer import": makes a run of a model in the format of another program.
#include <filesystem>

#include "core/system/files.h"
#include "train/checkpoint/checkpoint.h"
#include "train/cli/commands.h"
#include "train/cli/pretrained/new_path.h"
#include "train/pretrained/pretrained_model.h"
#include "train/tasks/text/description.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::map<std::string, Tensor> list_tensors(const Module& model) {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, tensor] : model.saved_tensors()) tensors[name] = tensor;
  return tensors;
}

void write_run(const fs::path& run, const PretrainedModel& source) {
  const std::string config = to_toml(source.config);
  write_new_path(run, [&](const fs::path& folder) {
    fs::create_directory(folder);
    save_checkpoint(folder.string(),
                    {.model_tensors = list_tensors(*source.model),
                     .optimizer_tensors = {},
                     .state = {.is_converted = true, .task_json = to_json(*source.tokenizer)},
                     .config_toml = config});
    replace_file((folder / kConfigFileName).string(), config);
    const bool is_bpe = source.tokenizer->name() == kBpeTokenizerName;
    replace_file((folder / (is_bpe ? "tokenizer.json" : "tokenizer.model")).string(),
                 source.tokenizer->serialize());
    write_source_facts(Folder(folder.string()), source.facts);
  });
}

}  // namespace

CommandSpec make_import_spec(const Arguments& /*words*/) {
  return {
      .summary =
          "Makes a run of a language model that another program has written. \"eval\", \"score\" and "
          "\"generate\" use the run, and a training starts from it with model.init.",
      .positionals = {{"PATH",
                       "a folder of Hugging Face (config.json, safetensors, tokenizer.json or "
                       "tokenizer.model) or a GGUF file"},
                      {"RUN", "folder of the new run"}},
      .details = "The weights become float32. data.path of the run is empty: set it to a text for \"eval\"."};
}

int run_import(const CommandLine& line) {
  const fs::path run = check_new_run("RUN", line.positionals[1]);
  PretrainedModel source = read_pretrained_model(line.positionals[0]);
  source.config.run.name = run.filename().string();
  write_run(run, source);
  const Config& config = source.config;
  print_report(Report()
                   .add("run", run.string())
                   .add("parameters", count_parameters(*source.model))
                   .add("layers", config.model.get<int64_t>("layers"))
                   .add("width", config.model.get<int64_t>("width"))
                   .add("vocabulary", source.model->options().vocabulary_size),
               line.common_options);
  return 0;
}

}  // namespace tapeformer
