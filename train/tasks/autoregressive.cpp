// Images and sequences: the autoregressive model on a Dataset.
#include <map>
#include <numbers>

#include "core/system/log.h"
#include "data/loader.h"
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/task.h"

namespace tapeformer {
namespace {

double bits(double nats) {
  return nats / std::numbers::ln2;
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
    repeats_steps_ = config.run.cuda_graphs && !device.is_cpu();
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

  std::string fetch(int64_t number, int64_t place) override {
    const auto batch = prefetcher_->next();
    check(batch.has_value(), "trainer", "no batch for step ", number);
    batches_[place] = *batch;
    loss_counts_[place] = counted_tokens(*batch);
    // The shares of the loss's chunks are counted on the host.
    if (!repeats_steps_ || (batch->mask.defined() && model_->options().loss_chunks > 1)) return "";
    const std::string layout =
        concat_text(place, batch->tokens.shape(), batch->mask.defined() ? batch->mask.shape() : Shape{});
    Batch& on_device = on_device_[layout];
    bring(batch->tokens, on_device.tokens);
    if (batch->mask.defined()) bring(batch->mask, on_device.mask);
    batches_[place] = on_device;
    return layout;
  }
  double loss_count(int64_t place) const override { return loss_counts_.at(place); }
  BatchLoss loss(int64_t place, const ForwardContext& context) override {
    const Batch& batch = batches_[place];
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
  void bring(const Tensor& from, Tensor& to) const {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), model_->predictor.weight.device());
    to.copy_from(from);
  }

  bool repeats_steps_ = false;
  std::map<int64_t, Batch> batches_;        // by place
  std::map<int64_t, double> loss_counts_;   // by place
  std::map<std::string, Batch> on_device_;  // by layout
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
