// Command "tapeformer eval": evaluates a trained model on a split of its data.
#include "core/errors.h"
#include "core/system/log.h"
#include "train/cli/commands.h"
#include "train/cli/run_options.h"
#include "train/cli/speech_commands.h"
#include "train/distributed/processes.h"
#include "train/evaluate.h"

namespace tapeformer {
namespace {

std::string kinds_with_random_evaluation() {
  std::string names;
  for (const AttentionKind& kind : attention_kinds())
    if (kind.capabilities.random_evaluation) names += (names.empty() ? "" : ", ") + kind.name;
  return names;
}

std::vector<OptionSpec> eval_options() {
  return {checkpoint_option(),
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
           .help = "batch size; 0: the batch size of the config",
           .min = 0,
           .max = 1 << 20},
          {.name = "dtype",
           .default_value = std::string("float32"),
           .help = "float32: arithmetic of run.precision; float64: all arithmetic in float64, for comparison "
                   "with other programs",
           .choices = {"float32", "float64"}},
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
          allow_commands_option()};
}

// Throws ConfigError for options that only speech models take.
void refuse_speech_options(const CommandLine& line) {
  for (const char* option : {"trn", "alignments"})
    if (!line.options.get<std::string>(option).empty())
      throw ConfigError(std::string("--") + option + " is for speech models");
  for (const char* option : {"beam", "confusions"})
    if (line.options.get<int64_t>(option) > 0)
      throw ConfigError(std::string("--") + option + " is for speech models");
}

int evaluate_autoregressive(const FoundRun& found, const CommandLine& line) {
  refuse_speech_options(line);
  const LoadedRun run = load_run(found);
  if (line.options.get<std::string>("dtype") == "float64") {
    if (run.config.run.precision != "float32")
      log_warning("--dtype float64 computes in float64: run.precision = \"", run.config.run.precision,
                  "\" has no effect");
    run.model->convert(DType::float64);
  }
  const auto dataset =
      open_split(run, line.options.get<std::string>("split"), line.options.get<int64_t>("limit"), line);
  int64_t batch = line.options.get<int64_t>("batch");
  if (batch == 0) batch = run.config.train.eval_batch_size;
  if (batch == 0) batch = run.config.data.batch_size;
  const Evaluation result =
      evaluate(*run.model, *dataset, batch, 0, static_cast<uint64_t>(line.common.seed.value_or(0)), {},
               *join_processes().communicator);
  Report report;
  report.add("split", result.split)
      .add("examples", result.examples)
      .add("nats_per_dim", result.nats_per_dim)
      .add("bits_per_dim", result.bits_per_dim);
  if (result.accuracy >= 0) report.add("accuracy", result.accuracy);
  report.add("seconds", result.seconds).add("checkpoint", run.checkpoint.string());
  print_report(report, line.common);
  return 0;
}

}  // namespace

int run_eval(const Arguments& arguments) {
  const auto line = parse_command(
      {.name = "eval",
       .summary =
           "Evaluates a trained model without dropout: nats and bits per predicted byte or symbol, or the "
           "phone error rate.",
       .positionals = {run_positional()},
       .options = eval_options(),
       .details = "--seed selects the random numbers that some attention kinds draw in evaluations: " +
                  kinds_with_random_evaluation() + ".",
       .uses_config = true},
      arguments);
  if (!line) return 0;
  use_processor_share(line->common);
  const FoundRun found = find_run(*line, ConfigUse::evaluation);
  return found.is_speech() ? evaluate_speech(found, *line) : evaluate_autoregressive(found, *line);
}

}  // namespace tapeformer
