// The batches of the training of a speech model.
#pragma once

#include <memory>
#include <optional>

#include "data/batches/bucket_plan.h"
#include "data/batches/prefetch.h"
#include "train/distributed/communicator.h"
#include "train/tasks/speech/data.h"
#include "train/tasks/step_batch.h"

namespace tapeformer {

class SpeechBatches final : public BatchSource {
 public:
  // The model computes the divisors of the losses. `processes` must outlive the object.
  SpeechBatches(const Config& config, SpeechPart part, std::shared_ptr<const SpeechModel> model,
                Communicator& processes);

  int64_t count_examples() const override { return static_cast<int64_t>(part_.usable_indices.size()); }
  double count_batches(double epochs) const override { return plan_.count_batches(epochs); }
  int64_t count_complete_epochs(int64_t batches) const override {
    return plan_.count_complete_epochs(batches);
  }
  void prefetch(int64_t first, int64_t end) override;
  StepBatch next(int64_t number) override;
  std::string describe_examples(int64_t number) const override;
  std::string compute_digest() const override;

 private:
  // Loads the slice of a batch that belongs to this process, padded to the longest utterance of the whole
  // batch.
  StepBatch load(const BucketPlan& plan, int64_t number) const;
  std::vector<int64_t> indices_at(const BucketPlan& plan, int64_t number) const;

  SpeechPart part_;
  std::shared_ptr<const SpeechModel> model_;  // shared with the task, which may be destroyed first
  Communicator& communicator_;
  BucketPlan plan_;
  std::optional<SpecAugmentOptions> augment_;
  uint64_t seed_;
  // Declared last, so that the thread of the queue ends before the members that it uses are destroyed.
  std::unique_ptr<PrefetchQueue<StepBatch>> queue_;
};

// Returns a text with the number of utterances of a part, and a checksum of their lengths and labels.
std::string describe_digest(const SpeechPart& part);

}  // namespace tapeformer
