// The command "tapeformer eval": evaluates a trained model on a split of its data.
#include <filesystem>
#include <set>

#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/tasks/registry/make_task.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string list_kinds_with_random_evaluation() {
  std::string names;
  for (const AttentionKind& kind : list_attention_kinds())
    if (kind.capabilities.has_random_evaluation) names += (names.empty() ? "" : ", ") + kind.name;
  return names;
}

std::vector<OptionSpec> make_eval_options() {
  std::vector<OptionSpec> options = {
      make_checkpoint_option(),
      {.name = "split",
       .default_value = std::string("test"),
       .help = "part of the data",
       .choices = {"train", "valid", "test"}},
      {.name = "limit",
       .default_value = int64_t{0},
       .help = "number of examples: the first ones, or for speech spread over the part; 0: all",
       .min = 0},
      {.name = "batch",
       .default_value = int64_t{0},
       .help = "batch size; 0: train.eval_batch_size, or data.batch_size if it is 0",
       .min = 0,
       .max = 1 << 20},
      {.name = "dtype",
       .default_value = std::string("float32"),
       .help = "float32: arithmetic of run.precision; float64: all arithmetic in float64, for comparison "
               "with other programs",
       .choices = {"float32", "float64"}}};
  for (OptionSpec& option : merge_subject_options(list_evaluation_options()))
    options.push_back(std::move(option));
  options.insert(options.end(), {make_weights_option(), make_allow_commands_option()});
  return options;
}

EvaluationOptions make_evaluation_options(const Task& task, const CommandLine& line) {
  return {.split = line.options.get<std::string>("split"),
          .limit = line.options.get<int64_t>("limit"),
          .batch_size = line.options.get<int64_t>("batch"),
          .seed = static_cast<uint64_t>(line.common_options.seed.value_or(0)),
          .task_options = read_subject_options(list_evaluation_options(), line, task)};
}

// Makes the folders of the output files. Throws ConfigError if an output would replace an input.
void prepare_output_files(const LoadedTask& loaded, const Evaluator& evaluator, const CommandLine& line) {
  const std::vector<fs::path> outputs = evaluator.list_output_files();
  if (outputs.empty()) return;
  for (const fs::path& path : outputs) {
    if (is_folder(path)) throw ConfigError(path.string() + ": is a folder");
    std::error_code error;
    if (path.has_parent_path()) fs::create_directories(path.parent_path(), error);
    if (error)
      throw std::runtime_error("cannot create " + path.parent_path().string() + ": " + error.message());
  }
  std::vector<fs::path> inputs =
      list_input_paths(loaded.config(), loaded.checkpoint_folder, line.common_options.data_dir);
  for (const fs::path& path : evaluator.list_input_files()) inputs.push_back(path);
  const std::set<fs::path> distinct(inputs.begin(), inputs.end());
  refuse_to_replace_inputs(outputs, {distinct.begin(), distinct.end()});
}

void convert_to_float64(const Task& task) {
  if (const std::string& precision = task.config().run.precision; precision != "float32")
    log_warning("--dtype float64 computes in float64: run.precision = \"", precision, "\" has no effect");
  task.model().convert(DType::float64);
}

void print(const TaskEvaluation& result, const LoadedTask& loaded, const CommandLine& line) {
  if (!line.common_options.json) print_text(result.headline);
  Report report;
  report.add("split", result.split).add("examples", result.example_count);
  add_fields(result.results, report);
  for (const auto& [name, value] : result.details.fields()) report.add(name, value);
  report.add("seconds", result.seconds).add("checkpoint", loaded.checkpoint_folder.string());
  print_report(report, line.common_options);
}

}  // namespace

CommandSpec make_eval_spec(const Arguments& /*words*/) {
  return {.summary =
              "Evaluates a trained model without dropout: nats and bits per predicted byte, character or "
              "symbol, the phone error rate, or BLEU.",
          .positionals = {make_run_argument()},
          .options = make_eval_options(),
          .details = "--seed selects the random numbers that some attention kinds draw in evaluations: " +
                     list_kinds_with_random_evaluation() + ".",
          .uses_config = true};
}

int run_eval(const CommandLine& line) {
  init_process_group_and_threads(line.common_options);
  const LoadedTask loaded = load_task(line, ConfigPurpose::evaluation);
  const EvaluationOptions options = make_evaluation_options(*loaded.task, line);
  apply_weights_option(line, *loaded.task);
  if (line.options.get<std::string>("dtype") == "float64") convert_to_float64(*loaded.task);
  const auto evaluator = loaded.task->open_evaluation(options);
  prepare_output_files(loaded, *evaluator, line);
  const TaskEvaluation result = evaluator->evaluate();
  if (get_process_rank() == 0)
    for (const auto& [path, contents] : result.output_files) replace_file(path.string(), contents);
  print(result, loaded, line);
  return 0;
}

}  // namespace tapeformer
