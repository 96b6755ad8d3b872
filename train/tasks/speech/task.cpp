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

// Returns the fields that "eval" prints besides the results.
Report make_details(const SpeechEvaluation& e, const SpeechPart& part, const EvaluationOptions& options) {
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
  report.add("without_loss", e.utterance_without_loss_count).add("beam", options.beam_size);
  if (options.confusion_count == 0) return report;
  std::vector<Report> confusions;
  for (const auto& [error, times] :
       e.score.find_most_frequent_errors(static_cast<size_t>(options.confusion_count)))
    confusions.push_back(Report().add("error", error).add("times", times));
  return report.add("confusions", confusions);
}

TaskEvaluation describe(const SpeechEvaluation& e, const SpeechPart& part, const EvaluationOptions& options) {
  const PhoneScore& s = e.score;
  TaskEvaluation result{.split = e.split,
                        .example_count = s.utterance_count,
                        .selection_metric = s.error_rate_percent(),
                        .seconds = e.seconds,
                        .metrics = {},
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
                        .utterances = e.utterances};
  if (e.mean_ctc_loss) {
    result.metrics.emplace_back("loss_nats", *e.mean_ctc_loss);
    result.summary += concat_text(", ", *e.mean_ctc_loss, " nats");
  }
  result.metrics.insert(result.metrics.end(), result.results.begin(), result.results.end());
  result.metrics.emplace_back("examples", s.utterance_count);
  result.metrics.emplace_back("seconds", e.seconds);
  if (const std::string processed = describe_processed_score(e); !processed.empty()) {
    result.summary += "; " + processed;
    result.headline += processed + "\n";
  }
  return result;
}

class SpeechEvaluator final : public Evaluator {
 public:
  SpeechEvaluator(const SpeechTask& task, std::shared_ptr<const SpeechPart> part, EvaluationOptions options,
                  Communicator& processes)
      : task_(task), part_(std::move(part)), options_(std::move(options)), communicator_(processes) {}

  int64_t count_examples() const override { return part_->utterances->size(); }
  std::string compute_digest() const override { return part_->compute_digest(); }
  std::vector<std::filesystem::path> list_input_files() const override {
    std::vector<std::filesystem::path> all;
    for (int64_t i = 0; i < part_->utterances->size(); ++i)
      for (const auto& path : tapeformer::list_input_files(part_->utterances->utterance(i)))
        all.push_back(path);
    return all;
  }
  TaskEvaluation evaluate(const StopCheck& stop) const override {
    SpeechEvaluationOptions options = make_speech_evaluation_options(task_.config());
    options.beam_size = options_.beam_size;
    if (options_.batch_size > 0) options.max_batch_size = options_.batch_size;
    return describe(tapeformer::evaluate(task_.model(), *part_, options, stop, communicator_), *part_,
                    options_);
  }

 private:
  const SpeechTask& task_;
  std::shared_ptr<const SpeechPart> part_;
  EvaluationOptions options_;
  Communicator& communicator_;
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

std::unique_ptr<Evaluator> SpeechTask::make_evaluator(const EvaluationOptions& options) const {
  Config limited = config();
  if (options.limit) limited.data.eval_limit = *options.limit;
  if (options.limit.value_or(0) > 0) limited.data.limit = *options.limit;
  const std::string split = options.split.empty()
                                ? SpeechCorpus(limited, environment_.data).choose_evaluation_split()
                                : options.split;
  auto part = read_speech_part(limited, split, environment_.data, &metadata_);
  log_part(*part);
  if (options.split.empty() && split == "test")
    log_warning(
        "no utterances are held out: a plateau schedule and the best checkpoint depend on the test set");
  return std::make_unique<SpeechEvaluator>(*this, std::move(part), options, environment_.processes);
}

BatchLoss SpeechTask::compute_loss(const StepBatch& batch, const ForwardContext& context) {
  int64_t frames = 0;
  for (const double length : batch.examples.lengths.to_vector()) frames += static_cast<int64_t>(length);
  return {model_->compute_loss(batch.examples, context).loss, frames};
}

}  // namespace tapeformer
