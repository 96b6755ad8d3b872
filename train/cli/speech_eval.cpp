// The command "tapeformer eval" for speech models. The command prints the phone error rate in the format of
// Kaldi and the most frequent confusions. With --alignments, the command also writes alignments. With --trn,
// it also writes input files for sclite, the scoring program of NIST.
#include <filesystem>
#include <set>

#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/file.h"
#include "train/cli/run_options.h"
#include "train/cli/speech_commands.h"
#include "train/distributed/processes.h"
#include "train/tasks/speech/evaluate.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kShownUtterances = 20;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error("cannot create " + folder.string() + ": " + error.message());
}

void write_alignments(const fs::path& path, const std::vector<ScoredUtterance>& utterances) {
  std::string text;
  for (const ScoredUtterance& utterance : utterances)
    text += utterance.id + "\n" + format_alignment(align_phones(utterance.reference, utterance.hypothesis)) +
            "\n";
  replace_file(path.string(), text);
}

// Throws ConfigError if --trn or --alignments would replace a file of the checkpoint or the corpus.
void check_output_files(const LoadedSpeechRun& run, const SpeechPart& part, const CommandLine& line) {
  const fs::path trn = line.options.get<std::string>("trn"),
                 alignments = line.options.get<std::string>("alignments");
  std::vector<fs::path> outputs;
  if (!trn.empty()) outputs = list_trn_files(trn);
  if (!alignments.empty()) outputs.push_back(alignments);
  std::set<fs::path> inputs;
  for (const fs::path& path :
       list_input_paths(run.config, run.checkpoint_folder, line.common_options.data_dir))
    inputs.insert(path);
  for (int64_t i = 0; i < part.dataset->size(); ++i)
    for (const fs::path& path : list_input_files(part.dataset->utterance(i))) inputs.insert(path);
  refuse_to_replace_inputs(outputs, {inputs.begin(), inputs.end()});
}

Report report_of(const SpeechEvaluation& result, const SpeechPart& part) {
  const PhoneScore &score = result.score, &processed = result.processed_score;
  Report report;
  report.add("split", result.split)
      .add("examples", score.utterance_count)
      .add("left_out", part.unusable_count)
      .add("per", score.error_rate_percent())
      .add("phones", score.reference_count)
      .add("insertions", score.insertion_count)
      .add("deletions", score.deletion_count)
      .add("substitutions", score.substitution_count)
      .add("wrong_utterances", score.wrong_utterance_count)
      .add("per_processed", processed.error_rate_percent())
      .add("examples_processed", processed.utterance_count)
      .add("phones_processed", processed.reference_count)
      .add("unprocessed", static_cast<int64_t>(result.unprocessed.size()));
  std::vector<Report> rows;
  for (const UnprocessedUtterance& utterance : result.unprocessed) {
    if (rows.size() == kShownUtterances) break;
    rows.push_back(Report()
                       .add("id", utterance.id)
                       .add("reason", utterance.reason)
                       .add("frames", utterance.frame_count)
                       .add("phones", utterance.phone_count));
  }
  if (!rows.empty()) report.add("unprocessed_utterances", rows);
  const auto& unseen = part.dataset->report().unseen_phones;
  if (!unseen.empty()) report.add("unseen_phones", Words(unseen.begin(), unseen.end()));
  if (result.mean_ctc_loss) report.add("nats_per_utterance", *result.mean_ctc_loss);
  return report.add("without_loss", result.utterance_without_loss_count);
}

}  // namespace

int run_speech_eval(const FoundRun& found, const CommandLine& line) {
  const fs::path trn = line.options.get<std::string>("trn"),
                 alignments = line.options.get<std::string>("alignments");
  if (!trn.empty()) make_folder(trn);
  LoadedSpeechRun run = load_speech_run(found);
  if (line.options.get<std::string>("dtype") == "float64") run.model->convert(DType::float64);
  run.config.data.limit = run.config.data.eval_limit = line.options.get<int64_t>("limit");
  const SpeechPart part = read_speech_part(run.config, line.options.get<std::string>("split"),
                                           make_data_access(line), &run.metadata);
  check_output_files(run, part, line);
  SpeechEvaluationOptions options = make_speech_evaluation_options(run.config);
  options.beam_size = line.options.get<int64_t>("beam");
  if (const auto batch = line.options.get<int64_t>("batch"); batch > 0) options.max_batch_size = batch;
  const SpeechEvaluation result = evaluate(*run.model, part, options, {}, *init_process_group().communicator);
  const bool writes = get_process_rank() == 0;
  if (writes && !trn.empty()) write_trn_files(trn, result.utterances);
  if (writes && !alignments.empty()) write_alignments(alignments, result.utterances);

  if (part.unusable_count > 0)
    log_warning(part.unusable_count, " utterances without usable sound or labels were left out, ",
                result.score.utterance_count, " are scored");
  const std::string processed = describe_processed_score(result);
  if (!line.common_options.json)
    print_text(result.score.format_line() + "\n" + (processed.empty() ? "" : processed + "\n"));
  Report report = report_of(result, part);
  report.add("beam", options.beam_size)
      .add("seconds", result.seconds)
      .add("checkpoint", run.checkpoint_folder.string());
  if (const int64_t count = line.options.get<int64_t>("confusions"); count > 0) {
    std::vector<Report> rows;
    for (const auto& [error, times] : result.score.find_most_frequent_errors(static_cast<size_t>(count)))
      rows.push_back(Report().add("error", error).add("times", times));
    report.add("confusions", rows);
  }
  print_report(report, line.common_options);
  return 0;
}

}  // namespace tapeformer
