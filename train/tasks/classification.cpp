// The task of classification: a classifier, trained on a Dataset with labels.
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_task.h"

namespace tapeformer {
namespace {

class ClassificationTask final : public DatasetTask {
 public:
  ClassificationTask(const Config& config, const std::string& data_dir, Device device,
                     Communicator& processes)
      : DatasetTask(config, data_dir, processes,
                    [](const Batch& batch) { return static_cast<double>(batch.tokens.size(0)); }),
        model_(make_classifier(config, training_set().info(), device)) {}

  const Module& model() const override { return *model_; }

  // Returns no layout: the host reads the lengths of the sequences in each step, which a graph cannot repeat.
  std::optional<BatchLayout> fetch(int64_t number, int64_t slot) override {
    batches_[slot] = next_batch(number, slot);
    return std::nullopt;
  }
  BatchLoss loss(int64_t slot, const ForwardContext& context) override {
    const Batch& batch = batches_[slot];
    return {model_->loss(batch, context), batch.tokens.numel()};
  }

  TaskEvaluation evaluate(const StopCheck& stop) const override {
    const ClassifierEvaluation e =
        tapeformer::evaluate(*model_, evaluation_set(), evaluation_batch(), 0, 0, stop, processes());
    return {.split = e.split,
            .examples = e.examples,
            .criterion = e.nats_per_example,
            .seconds = e.seconds,
            .metrics = {{"loss_nats", e.nats_per_example},
                        {"accuracy", e.accuracy},
                        {"examples", e.examples},
                        {"seconds", e.seconds}},
            .figures = {{"nats_per_example", e.nats_per_example}, {"accuracy", e.accuracy}},
            .text = concat_text(e.nats_per_example, " nats, accuracy ", 100 * e.accuracy, " %")};
  }

 private:
  std::map<int64_t, Batch> batches_;  // indexed by slot
  std::unique_ptr<Classifier> model_;
};

}  // namespace

std::unique_ptr<Task> make_classification_task(const Config& config, const DataAccess& data, Device device,
                                               Communicator& processes) {
  return std::make_unique<ClassificationTask>(config, data.data_dir, device, processes);
}

}  // namespace tapeformer
