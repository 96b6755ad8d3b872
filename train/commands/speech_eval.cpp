// tapeformer eval on speech: the phone error rate as Kaldi prints it, alignments, confusions and files for
// NIST's sclite.
#include <filesystem>

#include "core/files.h"
#include "core/log.h"
#include "train/commands/run_options.h"
#include "train/commands/speech_commands.h"
#include "train/speech_evaluate.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

void make_folder(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error("cannot make " + folder.string() + ": " + error.message());
}

void write_alignments(const fs::path& path, const std::vector<ScoredUtterance>& utterances) {
  std::string text;
  for (const ScoredUtterance& one : utterances)
    text += one.id + "\n" + alignment_text(align_phones(one.reference, one.hypothesis)) + "\n";
  replace_file(path.string(), text);
}

}  // namespace

int evaluate_speech(const FoundRun& found, const CommandLine& line) {
  const fs::path trn = line.options.get<std::string>("trn"),
                 alignments = line.options.get<std::string>("alignments");
  if (!trn.empty()) make_folder(trn);
  LoadedSpeechRun run = load_speech_run(found);
  if (line.options.get<std::string>("dtype") == "float64") run.model->convert(DType::float64);
  run.config.data.limit = run.config.data.eval_limit = line.options.get<int64_t>("limit");
  const SpeechPart part = make_speech_part(run.config, line.options.get<std::string>("split"),
                                           data_access(line), &run.description);
  SpeechEvaluationOptions options = evaluation_options(run.config);
  options.beam = line.options.get<int64_t>("beam");
  if (const auto batch = line.options.get<int64_t>("batch"); batch > 0) options.max_batch = batch;
  const SpeechEvaluation result = evaluate(*run.model, part, options);
  if (!trn.empty()) write_trn_files(trn, result.utterances);
  if (!alignments.empty()) write_alignments(alignments, result.utterances);

  const PhoneScore& score = result.score;
  const auto left_out =
      static_cast<int64_t>(part.set->report().bad.size() + part.set->report().too_short.size()) +
      part.too_long;
  if (left_out > 0) log_warning(left_out, " utterances were left out, ", score.utterances, " are scored");
  if (!line.common.json) print_text(score.line() + "\n");
  Report report;
  report.add("split", result.split)
      .add("examples", score.utterances)
      .add("left_out", left_out)
      .add("per", score.error_rate())
      .add("phones", score.reference)
      .add("insertions", score.insertions)
      .add("deletions", score.deletions)
      .add("substitutions", score.substitutions)
      .add("wrong_utterances", score.wrong)
      .add("nats_per_utterance", result.nats_per_utterance)
      .add("beam", options.beam)
      .add("seconds", result.seconds)
      .add("checkpoint", run.checkpoint.string());
  if (const int64_t count = line.options.get<int64_t>("confusions"); count > 0) {
    std::vector<Report> rows;
    for (const auto& [error, times] : score.worst(static_cast<size_t>(count)))
      rows.push_back(Report().add("error", error).add("times", times));
    report.add("confusions", rows);
  }
  print_report(report, line.common);
  return 0;
}

}  // namespace tapeformer
