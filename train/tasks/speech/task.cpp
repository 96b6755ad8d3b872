#include "train/tasks/speech/task.h"

#include <cmath>
#include <utility>

#include "core/system/log.h"
#include "data/files/text_lines.h"
#include "train/tasks/dataset_batches.h"
#include "train/tasks/speech/evaluate.h"

namespace tapeformer {
namespace {

void log_part(const SpeechPart& part) {
  const SpeechDatasetReport& r = part.utterances->report();
  log_info(part.info().split, ": ", part.usable_indices.size(), " utterances, ", r.frame_count, " frames, ",
           r.label_count, " labels of ", part.utterances->phone_table().class_count() - 1, " phones");
  const bool scoring = part.utterances->options().purpose == SpeechPurpose::scoring;
  const auto unaligned = static_cast<int64_t>(r.too_short_ids.size());
  const auto too_long = static_cast<int64_t>(part.too_long_indices.size()),
             too_short = static_cast<int64_t>(part.too_short_indices.size());
  if (!scoring && part.unusable_count + unaligned + too_long > 0)
    log_warning(part.info().split, ": ", part.unusable_count + unaligned + too_long,
                " utterances are left out: ", part.unusable_count, " unusable, ", unaligned,
                " shorter than their labels, ", too_long, " longer than model.max_frames");
  if (!scoring) return;
  if (part.unusable_count > 0)
    log_warning(part.info().split, ": ", part.unusable_count,
                " utterances without usable sound or labels are left out");
  if (too_long + too_short > 0)
    log_warning(part.info().split, ": the model cannot process ", too_long + too_short,
                " utterances, whose phones count as deletions: ", too_long, " longer than model.max_frames, ",
                too_short, " shorter than a step");
  if (!r.unseen_phones.empty())
    log_warning(part.info().split, ": phones that are unseen in training count as errors: ",
                join_words({r.unseen_phones.begin(), r.unseen_phones.end()}));
}

constexpr size_t kShownUtterances = 20;

// The options of evaluations of speech.
struct SpeechTaskOptions {
  int64_t beam = 0, confusions = 0;
  std::string trn, alignments;
};

OptionTable<SpeechTaskOptions> make_speech_option_table() {
  OptionTable<SpeechTaskOptions> table;
  table
      .add("beam", &SpeechTaskOptions::beam,
           "prefixes of a beam search; 0: the most probable class of each frame")
      .require_range(0, kMaxBeamSize);
  table.add("trn", &SpeechTaskOptions::trn, "output folder for ref.trn and hyp.trn, the input of sclite");
  table.add("alignments", &SpeechTaskOptions::alignments,
            "output file with each reference above its hypothesis");
  table.add("confusions", &SpeechTaskOptions::confusions, "number of most frequent errors to print")
      .require_range(0, 10'000);
  return table;
}

// Returns the output files that the options name, for the scores of these utterances.
OutputFiles make_output_files(const SpeechTaskOptions& options,
                              const std::vector<ScoredUtterance>& utterances) {
  OutputFiles files;
  if (const std::filesystem::path trn = options.trn; !trn.empty()) {
    const auto [reference, hypothesis] = format_trn(utterances);
    files = {{trn / "ref.trn", reference}, {trn / "hyp.trn", hypothesis}};
  }
  if (options.alignments.empty()) return files;
  std::string text;
  for (const ScoredUtterance& utterance : utterances)
    text += utterance.id + "\n" + format_alignment(align_phones(utterance.reference, utterance.hypothesis)) +
            "\n";
  files.emplace_back(options.alignments, text);
  return files;
}

// Returns the fields that "eval" prints besides the results.
Report make_details(const SpeechEvaluation& e, const SpeechPart& part, const SpeechTaskOptions& options) {
  Report report;
  report.add("left_out", part.unusable_count)
      .add("wrong_utterances", e.score.wrong_utterance_count)
      .add("examples_processed", e.processed_score.utterance_count)
      .add("phones_processed", e.processed_score.reference_count);
  std::vector<Report> rows;
  for (const UnprocessedUtterance& utterance : e.unprocessed) {
    if (rows.size() == kShownUtterances) break;
    rows.push_back(Report()
                       .add("id", utterance.id)
                       .add("reason", utterance.reason)
                       .add("frames", utterance.frame_count)
                       .add("phones", utterance.phone_count));
  }
  if (!rows.empty()) report.add("unprocessed_utterances", rows);
  const auto& unseen = part.utterances->report().unseen_phones;
  if (!unseen.empty()) report.add("unseen_phones", Words(unseen.begin(), unseen.end()));
  if (e.mean_ctc_loss) report.add("nats_per_utterance", *e.mean_ctc_loss);
  report.add("without_loss", e.utterance_without_loss_count).add("beam", options.beam);
  if (options.confusions == 0) return report;
  std::vector<Report> confusions;
  for (const auto& [error, times] :
       e.score.find_most_frequent_errors(static_cast<size_t>(options.confusions)))
    confusions.push_back(Report().add("error", error).add("times", times));
  return report.add("confusions", confusions);
}

TaskEvaluation describe(const SpeechEvaluation& e, const SpeechPart& part, const SpeechTaskOptions& options) {
  const PhoneScore& s = e.score;
  TaskEvaluation result{.selection_metric = s.error_rate_percent(),
                        .results = {{"per", s.error_rate_percent()},
                                    {"substitutions", s.substitution_count},
                                    {"deletions", s.deletion_count},
                                    {"insertions", s.insertion_count},
                                    {"phones", s.reference_count},
                                    {"per_processed", e.processed_score.error_rate_percent()},
                                    {"unprocessed", static_cast<int64_t>(e.unprocessed.size())}},
                        .summary = s.format_line(),
                        .details = make_details(e, part, options),
                        .headline = s.format_line() + "\n",
                        .output_files = make_output_files(options, e.utterances)};
  if (e.mean_ctc_loss) {
    result.metrics.emplace_back("loss_nats", *e.mean_ctc_loss);
    result.summary += concat_text(", ", *e.mean_ctc_loss, " nats");
  }
  result.metrics.insert(result.metrics.end(), result.results.begin(), result.results.end());
  if (const std::string processed = describe_processed_score(e); !processed.empty()) {
    result.summary += "; " + processed;
    result.headline += processed + "\n";
  }
  return result;
}

class SpeechEvaluator final : public DatasetEvaluator {
 public:
  SpeechEvaluator(std::shared_ptr<const SpeechPart> part, SpeechTaskOptions options, Function evaluate)
      : DatasetEvaluator(part, std::move(evaluate)), part_(std::move(part)), options_(std::move(options)) {}

  int64_t count_examples() const override { return part_->utterances->size(); }
  std::vector<std::filesystem::path> list_input_files() const override {
    std::vector<std::filesystem::path> all;
    for (int64_t i = 0; i < part_->utterances->size(); ++i)
      for (const auto& path : tapeformer::list_input_files(part_->utterances->utterance(i)))
        all.push_back(path);
    return all;
  }
  std::vector<std::filesystem::path> list_output_files() const override {
    std::vector<std::filesystem::path> paths;
    for (const auto& [path, contents] : make_output_files(options_, {})) paths.push_back(path);
    return paths;
  }

 private:
  std::shared_ptr<const SpeechPart> part_;
  SpeechTaskOptions options_;
};

}  // namespace

SpeechTask::SpeechTask(const Config& config, const TaskEnvironment& environment)
    : Task(config), environment_(environment) {
  SpeechCorpus(config, environment.data).check_part_folders();
  const auto& phones = environment.tokens.phone_table;
  const auto part = read_speech_part(config, "train", environment.data, nullptr, phones ? &*phones : nullptr);
  log_part(*part);
  metadata_ = make_speech_metadata(*part);
  model_ = make_speech_model(config, metadata_, environment.device);
  // The model is shared with the thread of the batches, which may end after the task.
  auto batches = std::make_unique<DatasetBatches>(
      config, part, environment.processes, [model = model_](const Batch& utterances) {
        return static_cast<double>(model->compute_loss_divisor(utterances));
      });
  log_info(part->info().split, ": ", std::round(1000 * batches->compute_padding_share()) / 10,
           " % of a batch is padding");
  batches_ = std::move(batches);
}

SpeechTask::SpeechTask(const Config& config, const TaskEnvironment& environment, const TrainingState& state,
                       const std::string& state_path)
    : Task(config),
      environment_(environment),
      metadata_(parse_speech_metadata(state.task_json, state_path)),
      model_(make_speech_model(config, metadata_, environment.device)) {}

std::vector<SubjectOptions> SpeechTask::list_evaluation_options() {
  return {{"speech", make_speech_option_table().specs()}};
}

std::unique_ptr<Evaluator> SpeechTask::open_evaluation(const EvaluationOptions& options) const {
  const SpeechTaskOptions own = options.read_task_options(make_speech_option_table());
  Config limited = config();
  if (options.limit) limited.data.eval_limit = *options.limit;
  if (options.limit.value_or(0) > 0) limited.data.limit = *options.limit;
  const std::string split = options.split.empty()
                                ? SpeechCorpus(limited, environment_.data).choose_evaluation_split()
                                : options.split;
  const auto part = read_speech_part(limited, split, environment_.data, &metadata_);
  log_part(*part);
  if (options.split.empty() && split == "test")
    log_warning(
        "no utterances are held out: a plateau schedule and the best checkpoint depend on the test set");
  SpeechEvaluationOptions scoring = make_speech_evaluation_options(config());
  scoring.beam_size = own.beam;
  if (options.batch_size > 0) scoring.max_batch_size = options.batch_size;
  return std::make_unique<SpeechEvaluator>(
      part, own, [this, part, own, scoring](const Dataset& /*set*/, const StopCheck& stop) {
        return describe(evaluate(*model_, *part, scoring, stop, environment_.processes), *part, own);
      });
}

BatchLoss SpeechTask::compute_loss(const StepBatch& batch, const ForwardContext& context) {
  int64_t frames = 0;
  for (const double length : batch.examples.lengths.to_vector()) frames += static_cast<int64_t>(length);
  return {model_->compute_loss(batch.examples, context).loss, frames};
}

}  // namespace tapeformer
