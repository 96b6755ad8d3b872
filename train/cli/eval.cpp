// The command "tapeformer eval": evaluates a trained model on a split of its data.
#include <filesystem>
#include <set>

#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"

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
  return {make_checkpoint_option(),
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
           .help = "batch size; 0: train.eval_batch_size, or data.batch_size if it is 0; with --context "
                   "carried: 1",
           .min = 0,
           .max = 1 << 20},
          {.name = "dtype",
           .default_value = std::string("float32"),
           .help = "float32: arithmetic of run.precision; float64: all arithmetic in float64, for comparison "
                   "with other programs",
           .choices = {"float32", "float64"}},
          {.name = "context",
           .default_value = std::string(),
           .help = "text: tokens that each window repeats from the previous window and does not score, or "
                   "\"carried\": one pass with the recurrent form",
           .default_text = "data.eval_context"},
          {.name = "beam",
           .default_value = int64_t{0},
           .help = "speech: prefixes of a beam search; translations: its hypotheses; 0: the most probable "
                   "class of each frame, or token",
           .min = 0,
           .max = kMaxBeamSize,
           .default_text = "0; translations: 4"},
          {.name = "length-penalty",
           .default_value = 0.6,
           .help = "translations: alpha of the length penalty; see \"translate\"",
           .min = 0,
           .max = 10},
          {.name = "trn",
           .default_value = std::string(),
           .help = "speech: output folder for ref.trn and hyp.trn, the input of sclite"},
          {.name = "alignments",
           .default_value = std::string(),
           .help = "speech: output file with each reference above its hypothesis"},
          {.name = "confusions",
           .default_value = int64_t{0},
           .help = "speech: number of most frequent errors to print",
           .min = 0,
           .max = 10000},
          make_weights_option(),
          make_allow_commands_option()};
}

// Throws ConfigError if the command line has an option of other models than that of the task.
void check_options(const Task& task, const CommandLine& line) {
  if (is_given(line, "context")) require_subject(task, {ModelSubject::text}, "--context");
  if (is_given(line, "beam"))
    require_subject(task, {ModelSubject::speech, ModelSubject::translations}, "--beam");
  if (is_given(line, "length-penalty"))
    require_subject(task, {ModelSubject::translations}, "--length-penalty");
  for (const std::string option : {"trn", "alignments", "confusions"})
    if (is_given(line, option)) require_subject(task, {ModelSubject::speech}, "--" + option);
}

EvaluationOptions make_evaluation_options(const Task& task, const CommandLine& line) {
  constexpr int64_t kTranslationBeam = 4;
  const OptionValues& options = line.options;
  const bool translates = task.subject() == ModelSubject::translations;
  return {
      .split = options.get<std::string>("split"),
      .limit = options.get<int64_t>("limit"),
      .batch_size = options.get<int64_t>("batch"),
      .seed = static_cast<uint64_t>(line.common_options.seed.value_or(0)),
      .context = options.get<std::string>("context"),
      .beam_size = translates && !is_given(line, "beam") ? kTranslationBeam : options.get<int64_t>("beam"),
      .length_penalty = options.get<double>("length-penalty"),
      .confusion_count = options.get<int64_t>("confusions")};
}

// Makes the folder in --trn. Throws ConfigError if --trn or --alignments would replace an input.
void prepare_output_files(const LoadedTask& loaded, const Evaluator& evaluator, const CommandLine& line) {
  const fs::path trn = line.options.get<std::string>("trn"),
                 alignments = line.options.get<std::string>("alignments");
  std::vector<fs::path> outputs;
  if (!trn.empty()) outputs = list_trn_files(trn);
  if (!alignments.empty()) outputs.push_back(alignments);
  if (outputs.empty()) return;
  if (is_folder(alignments)) throw ConfigError("--alignments " + alignments.string() + ": is a folder");
  std::error_code error;
  if (!trn.empty()) fs::create_directories(trn, error);
  if (error) throw std::runtime_error("cannot create " + trn.string() + ": " + error.message());
  std::vector<fs::path> inputs =
      list_input_paths(loaded.config(), loaded.checkpoint_folder, line.common_options.data_dir);
  for (const fs::path& path : evaluator.list_input_files()) inputs.push_back(path);
  const std::set<fs::path> distinct(inputs.begin(), inputs.end());
  refuse_to_replace_inputs(outputs, {distinct.begin(), distinct.end()});
}

void write_output_files(const std::vector<ScoredUtterance>& utterances, const CommandLine& line) {
  const auto &trn = line.options.get<std::string>("trn"),
             &alignments = line.options.get<std::string>("alignments");
  if (get_process_rank() != 0) return;
  if (!trn.empty()) write_trn_files(trn, utterances);
  if (alignments.empty()) return;
  std::string text;
  for (const ScoredUtterance& utterance : utterances)
    text += utterance.id + "\n" + format_alignment(align_phones(utterance.reference, utterance.hypothesis)) +
            "\n";
  replace_file(alignments, text);
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

int run_eval(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "eval",
       .summary = "Evaluates a trained model without dropout: nats and bits per predicted byte, character or "
                  "symbol, the phone error rate, or BLEU.",
       .positionals = {make_run_argument()},
       .options = make_eval_options(),
       .details = "--seed selects the random numbers that some attention kinds draw in evaluations: " +
                  list_kinds_with_random_evaluation() + ".",
       .uses_config = true},
      arguments);
  if (!line) return 0;
  init_process_group_and_threads(line->common_options);
  const LoadedTask loaded = load_task(*line, ConfigPurpose::evaluation);
  check_options(*loaded.task, *line);
  apply_weights_option(*line, *loaded.task);
  if (line->options.get<std::string>("dtype") == "float64") convert_to_float64(*loaded.task);
  const auto evaluator = loaded.task->open_evaluation(make_evaluation_options(*loaded.task, *line));
  prepare_output_files(loaded, *evaluator, *line);
  const TaskEvaluation result = evaluator->evaluate();
  write_output_files(result.utterances, *line);
  print(result, loaded, *line);
  return 0;
}

}  // namespace tapeformer
