// The command "tapeformer eval" for classifiers. The command prints the loss and the accuracy.
#include "train/build.h"
#include "train/cli/classification_commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/evaluate.h"

namespace tapeformer {

int evaluate_classification(const FoundRun& found, const CommandLine& line) {
  LoadedClassifierRun run = load_classifier_run(found);
  if (!line.options.get<std::string>("context").empty()) throw ConfigError("--context is for models of text");
  if (line.options.get<std::string>("dtype") == "float64") run.model->convert(DType::float64);
  const auto limit = line.options.get<int64_t>("limit");
  const auto dataset = open_split(run.config, nullptr, line.options.get<std::string>("split"), limit, line);
  int64_t batch = line.options.get<int64_t>("batch");
  if (batch == 0) batch = run.config.train.eval_batch_size;
  if (batch == 0) batch = run.config.data.batch_size;
  const ClassifierEvaluation result =
      evaluate(*run.model, *dataset, batch, 0, static_cast<uint64_t>(line.common.seed.value_or(0)), {},
               *join_processes().communicator);
  print_report(Report()
                   .add("split", result.split)
                   .add("examples", result.examples)
                   .add("nats_per_example", result.nats_per_example)
                   .add("accuracy", result.accuracy)
                   .add("seconds", result.seconds)
                   .add("checkpoint", run.checkpoint.string()),
               line.common);
  return 0;
}

}  // namespace tapeformer
