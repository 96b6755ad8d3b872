// A task of speech models: training with the CTC loss, and evaluation by the phone error rate.
#include <algorithm>
#include <cmath>
#include <span>

#include "core/errors.h"
#include "core/system/log.h"
#include "data/batches/prefetch.h"
#include "data/files/checksum.h"
#include "data/files/text_lines.h"
#include "train/tasks/speech/evaluate.h"
#include "train/tasks/speech/features.h"
#include "train/tasks/speech/plan.h"
#include "train/tasks/task.h"

namespace tapeformer {
namespace {

BatchPlanOptions plan_options(const Config& config) {
  return {.max_frames = get_speech_options(config).max_frames,
          .max_utterances = config.data.batch_size,
          .shuffle = config.data.shuffle,
          .seed = static_cast<uint64_t>(config.run.seed)};
}

SpecAugmentOptions make_augment_options(const SpeechDataOptions& d) {
  return {.frequency_masks = d.frequency_masks,
          .frequency_width = d.frequency_width,
          .time_masks = d.time_masks,
          .time_width = d.time_width,
          .time_share = d.time_share};
}

void report(const SpeechPart& part, const std::string& padding) {
  const SpeechDatasetReport& r = part.dataset->report();
  log_info(part.split, ": ", part.usable_indices.size(), " utterances, ", r.frame_count, " frames, ",
           r.label_count, " labels of ", part.dataset->phone_table().class_count() - 1, " phones", padding);
  const bool scoring = part.dataset->options().purpose == SpeechPurpose::scoring;
  const auto unaligned = static_cast<int64_t>(r.too_short_ids.size());
  const auto too_long = static_cast<int64_t>(part.too_long_indices.size()),
             too_short = static_cast<int64_t>(part.too_short_indices.size());
  if (!scoring && part.unusable_count + unaligned + too_long > 0)
    log_warning(part.split, ": ", part.unusable_count + unaligned + too_long,
                " utterances are left out: ", part.unusable_count, " unusable, ", unaligned,
                " shorter than their labels, ", too_long, " longer than model.max_frames");
  if (!scoring) return;
  if (part.unusable_count > 0)
    log_warning(part.split, ": ", part.unusable_count,
                " utterances without usable sound or labels are left out");
  if (too_long + too_short > 0)
    log_warning(part.split, ": the model cannot process ", too_long + too_short,
                " utterances, whose phones count as deletions: ", too_long, " longer than model.max_frames, ",
                too_short, " shorter than a step");
  if (!r.unseen_phones.empty())
    log_warning(part.split, ": phones that are unseen in training count as errors: ",
                join_words({r.unseen_phones.begin(), r.unseen_phones.end()}));
}

std::string format_evaluation(const SpeechEvaluation& e) {
  std::string text = e.score.format_line();
  if (e.mean_ctc_loss) text += concat_text(", ", *e.mean_ctc_loss, " nats");
  if (const std::string processed = describe_processed_score(e); !processed.empty()) text += "; " + processed;
  return text;
}

CtcBatch make_ctc_batch(const SpeechBatch& batch) {
  return {batch.features, batch.lengths, batch.labels, batch.label_lengths};
}

std::string digest_of_part(const SpeechPart& part) {
  Checksum checksum;
  const auto append = [&](const std::string& text) { checksum.append(text.data(), text.size()); };
  for (int64_t i = 0; i < part.dataset->size(); ++i) {
    append(part.dataset->utterance(i).id + " " + std::to_string(part.dataset->frame_count(i)));
    for (const int64_t label : part.dataset->labels(i)) append(" " + std::to_string(label));
    append("\n");
  }
  return concat_text(part.dataset->size(), " utterances of ", part.split, ", CRC-32 ",
                     format_crc32(checksum.crc32));
}

// The slice of a batch that this process computes.
struct SlicedUtterances {
  CtcBatch batch;
  BatchSlice slice;
};

class SpeechTask final : public Task {
 public:
  SpeechTask(const Config& config, const DataAccessOptions& data, Device device, Communicator& processes)
      : communicator_(processes),
        training_(read_speech_part(config, "train", data, nullptr)),
        metadata_(make_speech_metadata(training_)),
        evaluated_(read_speech_part(config, choose_speech_evaluation_split(config, data), data, &metadata_)),
        plan_(training_.frame_counts(), plan_options(config)),
        model_(make_speech_model(config, metadata_, device)),
        evaluation_(make_speech_evaluation_options(config)),
        seed_(static_cast<uint64_t>(config.run.seed)) {
    if (const SpeechDataOptions d = get_speech_options(config); d.spec_augment)
      augment_ = make_augment_options(d);
    report(training_, concat_text("; ", std::round(1000 * plan_.compute_padding_share()) / 10,
                                  " % of a batch is padding"));
    report(evaluated_, "");
    if (evaluated_.split == "test")
      log_warning(
          "no utterances are held out: a plateau schedule and the best checkpoint depend on the test set");
  }

  const Module& model() const override { return *model_; }
  int64_t count_training_examples() const override {
    return static_cast<int64_t>(training_.usable_indices.size());
  }
  int64_t count_evaluation_examples() const override { return evaluated_.dataset->size(); }
  double count_batches(double epochs) const override { return plan_.count_batches(epochs); }
  int64_t count_complete_epochs(int64_t batches) const override {
    return plan_.count_complete_epochs(batches);
  }
  bool reports_epochs() const override { return true; }
  const char* speed_unit() const override { return "frames"; }

  void prefetch_batches(int64_t first, int64_t end) override {
    // The thread needs a separate plan, because a plan caches epochs and is not thread-safe.
    const auto plan = std::make_shared<const SpeechBatchPlan>(plan_);
    prefetch_ = std::make_unique<PrefetchQueue<SlicedUtterances>>(
        [this, plan](int64_t number) { return load(*plan, number); }, first, end);
  }

  // Returns no layout, because a graph cannot be reused for utterances of other lengths.
  std::optional<BatchLayout> fetch_batch(int64_t number, int64_t slot) override {
    auto next = prefetch_->next();
    check(next.has_value(), "speech", "no batch for step ", number);
    batches_[slot] = std::move(*next);
    return std::nullopt;
  }
  BatchSlice get_slice(int64_t slot) const override { return batches_.at(slot).slice; }
  BatchLoss compute_loss(int64_t slot, const ForwardContext& context) override {
    const CtcBatch batch = std::exchange(batches_[slot].batch, {});
    int64_t frames = 0;
    for (const double length : batch.frame_lengths.to_vector()) frames += static_cast<int64_t>(length);
    return {model_->compute_loss(batch, context).loss, frames};
  }

  std::string describe_examples(int64_t number) const override {
    std::string text;
    for (const int64_t i : indices_at(plan_, number))
      text += (text.empty() ? "" : ", ") + training_.dataset->utterance(i).id;
    return text;
  }

  TaskEvaluation evaluate(const StopCheck& stop) const override {
    const SpeechEvaluation e = tapeformer::evaluate(*model_, evaluated_, evaluation_, stop, communicator_);
    const PhoneScore& s = e.score;
    const MetricRecord figures{{"per", s.error_rate_percent()},
                               {"substitutions", s.substitution_count},
                               {"deletions", s.deletion_count},
                               {"insertions", s.insertion_count},
                               {"phones", s.reference_count},
                               {"per_processed", e.processed_score.error_rate_percent()},
                               {"unprocessed", static_cast<int64_t>(e.unprocessed.size())}};
    MetricRecord metrics;
    if (e.mean_ctc_loss) metrics.emplace_back("loss_nats", *e.mean_ctc_loss);
    metrics.insert(metrics.end(), figures.begin(), figures.end());
    metrics.emplace_back("examples", s.utterance_count);
    metrics.emplace_back("seconds", e.seconds);
    return {.split = e.split,
            .example_count = s.utterance_count,
            .selection_metric = s.error_rate_percent(),
            .seconds = e.seconds,
            .metrics = metrics,
            .printed_results = figures,
            .summary = format_evaluation(e)};
  }

  std::string metadata_json() const override { return to_json(metadata_); }
  DataDigest compute_data_digest() const override {
    return {digest_of_part(training_), digest_of_part(evaluated_)};
  }

 private:
  // Loads the slice of batch `number` that belongs to this process, padded to the longest utterance of the
  // whole batch.
  SlicedUtterances load(const SpeechBatchPlan& plan, int64_t number) const {
    const RandomStream stream(seed_, "spec_augment", static_cast<uint64_t>(number));
    const std::vector<int64_t> indices = indices_at(plan, number);
    const auto count = static_cast<int64_t>(indices.size());
    const auto [first, last] = compute_slice_range(count, communicator_.rank(), communicator_.size());
    const auto own =
        std::span(indices).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
    int64_t frames = 0;
    for (const int64_t i : indices) frames = std::max(frames, training_.dataset->frame_count(i));
    const CtcBatch batch = make_ctc_batch(training_.dataset->batch(
        own, augment_ ? &*augment_ : nullptr, stream, plan.count_complete_epochs(number), frames));
    BatchSlice slice{.first_example = first, .example_count = last - first};
    slice.loss_divisor = static_cast<double>(model_->compute_loss_divisor(batch));
    slice.batch_loss_divisor = slice.example_count < count
                                   ? static_cast<double>(model_->compute_loss_divisor(
                                         make_ctc_batch(training_.dataset->make_targets(indices))))
                                   : slice.loss_divisor;
    return {batch, slice};
  }
  std::vector<int64_t> indices_at(const SpeechBatchPlan& plan, int64_t number) const {
    std::vector<int64_t> indices;
    for (const int64_t index : plan.list_utterances(number))
      indices.push_back(training_.usable_indices[static_cast<size_t>(index)]);
    return indices;
  }

  Communicator& communicator_;
  SpeechPart training_;
  SpeechMetadata metadata_;
  SpeechPart evaluated_;
  SpeechBatchPlan plan_;
  std::unique_ptr<SpeechModel> model_;
  SpeechEvaluationOptions evaluation_;
  std::optional<SpecAugmentOptions> augment_;
  uint64_t seed_;
  std::map<int64_t, SlicedUtterances> batches_;  // indexed by slot
  // Declared last, so that the thread of the queue ends before the members that it uses are destroyed.
  std::unique_ptr<PrefetchQueue<SlicedUtterances>> prefetch_;
};

}  // namespace

std::unique_ptr<Task> make_speech_task(const Config& config, const DataAccessOptions& data, Device device,
                                       Communicator& processes) {
  check_part_folders(config, data);
  return std::make_unique<SpeechTask>(config, data, device, processes);
}

}  // namespace tapeformer
