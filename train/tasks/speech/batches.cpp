#include "train/tasks/speech/batches.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/checksum.h"
#include "train/tasks/speech/features.h"

namespace tapeformer {
namespace {

BucketPlanOptions make_plan_options(const Config& config) {
  return {.max_batch_length = get_speech_options(config).max_frames,
          .max_examples = config.data.batch_size,
          .shuffle = config.data.shuffle,
          .seed = static_cast<uint64_t>(config.run.seed)};
}

std::optional<SpecAugmentOptions> make_augment_options(const SpeechDataOptions& d) {
  if (!d.spec_augment) return std::nullopt;
  return SpecAugmentOptions{.frequency_masks = d.frequency_masks,
                            .frequency_width = d.frequency_width,
                            .time_masks = d.time_masks,
                            .time_width = d.time_width,
                            .time_share = d.time_share};
}

CtcBatch make_ctc_batch(const SpeechBatch& batch) {
  return {batch.features, batch.lengths, batch.labels, batch.label_lengths};
}

}  // namespace

SpeechBatches::SpeechBatches(const Config& config, SpeechPart part, std::shared_ptr<const SpeechModel> model,
                             Communicator& processes)
    : part_(std::move(part)),
      model_(std::move(model)),
      communicator_(processes),
      plan_(part_.frame_counts(), make_plan_options(config)),
      augment_(make_augment_options(get_speech_options(config))),
      seed_(static_cast<uint64_t>(config.run.seed)) {
  log_info(part_.split, ": ", std::round(1000 * plan_.compute_padding_share()) / 10,
           " % of a batch is padding");
}

void SpeechBatches::prefetch(int64_t first, int64_t end) {
  // The thread needs a separate plan, because a plan caches epochs and is not thread-safe.
  const auto plan = std::make_shared<const BucketPlan>(plan_);
  queue_ = std::make_unique<PrefetchQueue<StepBatch>>(
      [this, plan](int64_t number) { return load(*plan, number); }, first, end);
}

StepBatch SpeechBatches::next(int64_t number) {
  auto batch = queue_->next();
  check(batch.has_value(), "speech", "no batch for step ", number);
  return std::move(*batch);
}

std::string SpeechBatches::describe_examples(int64_t number) const {
  std::string text;
  for (const int64_t i : indices_at(plan_, number))
    text += (text.empty() ? "" : ", ") + part_.dataset->utterance(i).id;
  return text;
}

std::string SpeechBatches::compute_digest() const {
  return describe_digest(part_);
}

StepBatch SpeechBatches::load(const BucketPlan& plan, int64_t number) const {
  const RandomStream stream(seed_, "spec_augment", static_cast<uint64_t>(number));
  const std::vector<int64_t> indices = indices_at(plan, number);
  const auto count = static_cast<int64_t>(indices.size());
  const auto [first, last] = compute_slice_range(count, communicator_.rank(), communicator_.size());
  const auto own = std::span(indices).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first));
  int64_t frames = 0;
  for (const int64_t i : indices) frames = std::max(frames, part_.dataset->frame_count(i));
  const CtcBatch batch = make_ctc_batch(part_.dataset->batch(own, augment_ ? &*augment_ : nullptr, stream,
                                                             plan.count_complete_epochs(number), frames));
  BatchSlice slice{.first_example = first, .example_count = last - first};
  slice.loss_divisor = static_cast<double>(model_->compute_loss_divisor(batch));
  slice.batch_loss_divisor = slice.example_count < count
                                 ? static_cast<double>(model_->compute_loss_divisor(
                                       make_ctc_batch(part_.dataset->make_targets(indices))))
                                 : slice.loss_divisor;
  return {.number = number, .slice = slice, .tensors = batch};
}

std::vector<int64_t> SpeechBatches::indices_at(const BucketPlan& plan, int64_t number) const {
  std::vector<int64_t> indices;
  for (const int64_t index : plan.list_examples(number))
    indices.push_back(part_.usable_indices[static_cast<size_t>(index)]);
  return indices;
}

std::string describe_digest(const SpeechPart& part) {
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

}  // namespace tapeformer
