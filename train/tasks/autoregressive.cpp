// Task of images and sequences: the autoregressive model on a Dataset.
#include <map>
#include <numbers>
#include <utility>

#include "core/system/log.h"
#include "data/batches/loader.h"
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/task.h"

namespace tapeformer {
namespace {

double bits(double nats) {
  return nats / std::numbers::ln2;
}

BatchLayout layout_of(const Batch& batch) {
  const auto sizes = [](const Tensor& tensor) {
    return std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
  };
  return {.tokens = sizes(batch.tokens),
          .mask = batch.mask.defined() ? sizes(batch.mask) : std::vector<int64_t>()};
}

class AutoregressiveTask final : public Task {
 public:
  AutoregressiveTask(const Config& config, const std::string& data_dir, Device device) {
    const auto training_set = make_split(config, "train", data_dir);
    evaluation_set_ = make_split(config, evaluation_split(config), data_dir);
    loader_ = std::make_shared<const Loader>(training_set,
                                             LoaderOptions{.batch_size = config.data.batch_size,
                                                           .shuffle = config.data.shuffle,
                                                           .seed = static_cast<uint64_t>(config.run.seed)});
    model_ = make_model(config, training_set->info(), device);
    captures_steps_ = config.run.cuda_graphs && !device.is_cpu();
    evaluation_batch_ =
        config.train.eval_batch_size > 0 ? config.train.eval_batch_size : config.data.batch_size;
  }

  const Module& model() const override { return *model_; }
  int64_t training_examples() const override { return loader_->dataset().size(); }
  int64_t evaluation_examples() const override { return evaluation_set_->size(); }

  double batches_in(double epochs) const override {
    return epochs * static_cast<double>(loader_->batches_per_epoch());
  }
  int64_t epochs_done(int64_t batches) const override { return batches / loader_->batches_per_epoch(); }

  void prepare_batches(int64_t first, int64_t last) override {
    prefetcher_ = std::make_unique<Prefetcher>(loader_, first, last);
  }

  std::optional<BatchLayout> fetch(int64_t number, int64_t slot) override {
    const auto batch = prefetcher_->next();
    check(batch.has_value(), "trainer", "no batch for step ", number);
    batches_[slot] = *batch;
    loss_counts_[slot] = unmasked_tokens(*batch);
    // With a mask, the host computes the weights of the loss chunks from the values of the batch.
    if (!captures_steps_ || (batch->mask.defined() && model_->options().loss_chunks > 1)) return std::nullopt;
    const BatchLayout layout = layout_of(*batch);
    Batch& on_device = on_device_[{slot, layout}];
    copy_to_device(batch->tokens, on_device.tokens);
    if (batch->mask.defined()) copy_to_device(batch->mask, on_device.mask);
    batches_[slot] = on_device;
    return layout;
  }
  double loss_count(int64_t slot) const override { return loss_counts_.at(slot); }
  BatchLoss loss(int64_t slot, const ForwardContext& context) override {
    const Batch& batch = batches_[slot];
    return {model_->loss(batch, context), batch.tokens.size(0) * (batch.tokens.size(1) - 1)};
  }

  std::string examples_of(int64_t number) const override {
    std::string text;
    for (const int64_t index : loader_->indices_at(number))
      text += (text.empty() ? "" : ", ") + std::to_string(index);
    return text;
  }

  TaskEvaluation evaluate(const StopCheck& stop) const override {
    const Evaluation e = tapeformer::evaluate(*model_, *evaluation_set_, evaluation_batch_, 0, 0, stop);
    TaskEvaluation result{.split = e.split,
                          .examples = e.examples,
                          .criterion = e.nats_per_dim,
                          .seconds = e.seconds,
                          .metrics = {{"loss_nats", e.nats_per_dim},
                                      {"bits_per_dim", e.bits_per_dim},
                                      {"examples", e.examples},
                                      {"seconds", e.seconds}},
                          .figures = {{"nats_per_dim", e.nats_per_dim}, {"bits_per_dim", e.bits_per_dim}},
                          .text = concat_text(e.nats_per_dim, " nats, ", e.bits_per_dim, " bits/dim")};
    if (e.accuracy >= 0) {
      result.metrics.emplace_back("accuracy", e.accuracy);
      result.figures.emplace_back("accuracy", e.accuracy);
      result.text += concat_text(", accuracy ", 100 * e.accuracy, " %");
    }
    return result;
  }

  void add_metrics(double loss, MetricRecord& record) const override {
    record.emplace_back("bits_per_dim", bits(loss));
  }
  double shown_bits(double loss) const override {
    return model_->options().head == Head::logistic_mixture ? bits(loss) : -1;
  }

 private:
  // Copies a tensor to the device of the model. `to` is allocated by the first call and keeps its address.
  void copy_to_device(const Tensor& from, Tensor& to) const {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), model_->predictor.weight.device());
    to.copy_from(from);
  }

  bool captures_steps_ = false;
  std::map<int64_t, Batch> batches_;       // indexed by slot
  std::map<int64_t, double> loss_counts_;  // indexed by slot
  std::map<std::pair<int64_t, BatchLayout>, Batch> on_device_;
  std::shared_ptr<const Dataset> evaluation_set_;
  std::shared_ptr<const Loader> loader_;
  std::unique_ptr<Prefetcher> prefetcher_;
  std::unique_ptr<AutoregressiveModel> model_;
  int64_t evaluation_batch_ = 0;
};

}  // namespace

std::unique_ptr<Task> make_autoregressive_task(const Config& config, const DataAccess& data, Device device) {
  return std::make_unique<AutoregressiveTask>(config, data.data_dir, device);
}

}  // namespace tapeformer
