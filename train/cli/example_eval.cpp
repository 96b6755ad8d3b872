// The command "tapeformer eval" for classifiers and Set Transformers. The command prints the scores of the
// model, such as its loss and accuracy.
#include "train/build.h"
#include "train/cli/example_commands.h"
#include "train/cli/run_options.h"
#include "train/distributed/processes.h"
#include "train/evaluate.h"

namespace tapeformer {

int run_example_eval(const FoundRun& found, const CommandLine& line) {
  LoadedExampleRun run = load_example_run(found);
  if (line.options.get<std::string>("dtype") == "float64") run.model->convert(DType::float64);
  const auto limit = line.options.get<int64_t>("limit");
  const auto dataset = open_split(run.config, nullptr, line.options.get<std::string>("split"), limit, line);
  int64_t batch = line.options.get<int64_t>("batch");
  if (batch == 0) batch = run.config.train.eval_batch_size;
  if (batch == 0) batch = run.config.data.batch_size;
  const ExampleEvaluation result =
      evaluate(*run.model, *dataset, batch, 0, static_cast<uint64_t>(line.common_options.seed.value_or(0)),
               {}, *init_process_group().communicator);
  Report report;
  report.add("split", result.split).add("examples", result.example_count);
  for (const auto& [name, score] : result.scores) report.add(name, score);
  report.add("seconds", result.seconds).add("checkpoint", run.checkpoint_folder.string());
  print_report(report, line.common_options);
  return 0;
}

}  // namespace tapeformer
