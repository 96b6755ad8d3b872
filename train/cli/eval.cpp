// The command "tapeformer eval": evaluates a trained model on a split of its data.
#include <charconv>
#include <optional>

#include "core/errors.h"
#include "core/system/log.h"
#include "train/build.h"
#include "train/cli/commands.h"
#include "train/cli/example_commands.h"
#include "train/cli/speech_commands.h"
#include "train/cli/text_commands.h"
#include "train/distributed/processes.h"
#include "train/evaluate.h"
#include "train/inference/text.h"

namespace tapeformer {
namespace {

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
           .help = "speech: prefixes of a beam search; 0: the most probable class of each frame",
           .min = 0,
           .max = 10000},
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
          make_allow_commands_option()};
}

void refuse_speech_options(const CommandLine& line) {
  for (const char* option : {"trn", "alignments"})
    if (!line.options.get<std::string>(option).empty())
      throw ConfigError(std::string("--") + option + " is for speech models");
  for (const char* option : {"beam", "confusions"})
    if (line.options.get<int64_t>(option) > 0)
      throw ConfigError(std::string("--") + option + " is for speech models");
}

void refuse_text_options(const CommandLine& line) {
  if (!line.options.get<std::string>("context").empty()) throw ConfigError("--context is for models of text");
}

constexpr char kCarried[] = "carried";

// Returns the number of tokens in --context, or std::nullopt if --context is empty or "carried". Throws
// ConfigError unless the number is from 0 to `length` - 1.
std::optional<int64_t> parse_context_length(const CommandLine& line, int64_t length) {
  const auto& text = line.options.get<std::string>("context");
  if (text.empty() || text == kCarried) return std::nullopt;
  int64_t tokens = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < 0 || tokens >= length)
    throw ConfigError(concat_text("--context ", text,
                                  ": expected \"carried\", or a number of tokens below "
                                  "data.sequence_length = ",
                                  length));
  return tokens;
}

std::string describe_context(const TextDataset& text, int64_t memory) {
  const int64_t length = text.info().length, context = text.eval_context();
  if (memory > 0)
    return concat_text("segments of ", length, " predictions after a memory of at most ", memory,
                       " tokens; all predictions are scored");
  return concat_text("windows of ", length, " predictions, stride ", length - context,
                     context == 0 ? "; all predictions are scored"
                                  : concat_text("; the first ", context,
                                                " predictions of each window but the first are not scored"));
}

// Adds the numbers of scored tokens, bytes, characters and unknown tokens to the report. Also adds `context`,
// a description of the windows or of the carried state with which the text is scored.
void report_text(const Evaluation& result, const std::string& context, Report& report) {
  report.add("context", context)
      .add("tokens", result.text_score->token_count)
      .add("bytes", result.text_score->byte_count)
      .add("characters", result.text_score->character_count);
  add_unknown_tokens(*result.text_score, report);
}

int evaluate_autoregressive(const FoundRun& found, const CommandLine& line) {
  LoadedRun run = load_run(found);
  if (!run.tokenizer) refuse_text_options(line);
  if (line.options.get<std::string>("dtype") == "float64") {
    if (run.config.run.precision != "float32")
      log_warning("--dtype float64 computes in float64: run.precision = \"", run.config.run.precision,
                  "\" has no effect");
    run.model->convert(DType::float64);
  }
  if (run.tokenizer)
    if (const auto context = parse_context_length(line, run.dataset_info.length))
      run.config.data.options.set("eval_context", *context);
  const auto limit = line.options.get<int64_t>("limit");
  const bool carried = line.options.get<std::string>("context") == kCarried;
  const auto dataset = open_split(run.config, run.tokenizer, line.options.get<std::string>("split"),
                                  carried ? 0 : limit, line);
  int64_t batch = line.options.get<int64_t>("batch");
  if (batch == 0 && carried) batch = 1;
  if (batch == 0) batch = run.config.train.eval_batch_size;
  if (batch == 0) batch = run.config.data.batch_size;
  const auto* const text = dynamic_cast<const TextDataset*>(dataset.get());
  const Evaluation result = carried ? evaluate_recurrent(*run.model, *text, batch, limit)
                                    : evaluate(*run.model, *dataset, batch, 0,
                                               static_cast<uint64_t>(line.common_options.seed.value_or(0)),
                                               {}, *init_process_group().communicator);
  Report report;
  report.add("split", result.split).add("examples", result.example_count);
  for (const auto& [name, value] : list_named_results(result)) report.add(name, value);
  if (text)
    report_text(
        result,
        carried ? concat_text("state carried through ", result.example_count, " equal parts of the split")
                : describe_context(*text, compute_max_memory_span(run.model->options().encoder.attention)),
        report);
  report.add("seconds", result.seconds).add("checkpoint", run.checkpoint_folder.string());
  print_report(report, line.common_options);
  return 0;
}

}  // namespace

int run_eval(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "eval",
       .summary = "Evaluates a trained model without dropout: nats and bits per predicted byte, character or "
                  "symbol, or the phone error rate.",
       .positionals = {make_run_argument()},
       .options = make_eval_options(),
       .details = "--seed selects the random numbers that some attention kinds draw in evaluations: " +
                  list_kinds_with_random_evaluation() + ".",
       .uses_config = true},
      arguments);
  if (!line) return 0;
  init_process_group_and_threads(line->common_options);
  const FoundRun found = find_run(*line, ConfigPurpose::evaluation);
  const bool is_example_run = predicts_one_result_per_example(found.config);
  if (found.is_speech() || is_example_run) refuse_text_options(*line);
  if (found.is_speech()) return run_speech_eval(found, *line);
  refuse_speech_options(*line);
  return is_example_run ? run_example_eval(found, *line) : evaluate_autoregressive(found, *line);
}

}  // namespace tapeformer
