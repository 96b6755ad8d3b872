// The task that trains and evaluates autoregressive models of images, texts and sequences.
#include <algorithm>
#include <map>
#include <numbers>
#include <utility>

#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/dataset_task.h"
#include "train/tasks/text/description.h"

namespace tapeformer {
namespace {

double convert_to_bits(double nats) {
  return nats / std::numbers::ln2;
}

BatchLayout make_layout(const Batch& batch) {
  const auto sizes = [](const Tensor& tensor) {
    return std::vector<int64_t>(tensor.shape().begin(), tensor.shape().end());
  };
  return {.token_shape = sizes(batch.tokens),
          .mask_shape = batch.mask.defined() ? sizes(batch.mask) : std::vector<int64_t>()};
}

class AutoregressiveTask final : public DatasetTask {
 public:
  AutoregressiveTask(const Config& config, const std::string& data_dir, Device device,
                     Communicator& processes)
      : DatasetTask(config, data_dir, processes, count_unmasked_tokens) {
    model_ = make_model(config, training_set().info(), device);
    memory_ = model_->encoder.make_segment_memory(config.data.batch_size);
    if (memory_ && processes.size() > 1)
      throw ConfigError(concat_text("attention.memory: a segment memory needs a run with one process, got ",
                                    processes.size(), " processes"));
    captures_steps_ = config.run.cuda_graphs && !device.is_cpu();
  }

  const Module& model() const override { return *model_; }

  std::optional<BatchLayout> fetch_batch(int64_t number, int64_t slot) override {
    const Batch batch = next_batch(number, slot);
    batches_[slot] = batch;
    preceding_[slot] = number % batches_per_epoch() * (batch.tokens.size(1) - 1);
    // If the batch has a mask and the loss has several chunks, the host computes the weight of each chunk
    // from the mask. A CUDA graph does not capture computations on the host.
    if (!captures_steps_ || (batch.mask.defined() && model_->options().loss_chunks > 1)) return std::nullopt;
    BatchLayout layout = make_layout(batch);
    if (memory_)
      layout.memory_token_count =
          std::min(preceding_[slot], compute_max_memory_span(model_->options().encoder.attention));
    Batch& run_on_device = on_device_[{slot, layout}];
    copy_to_device(batch.tokens, run_on_device.tokens);
    if (batch.mask.defined()) copy_to_device(batch.mask, run_on_device.mask);
    batches_[slot] = run_on_device;
    return layout;
  }
  NamedTensors state() const override { return memory_ ? memory_->state() : NamedTensors(); }
  BatchLoss compute_loss(int64_t slot, const ForwardContext& context) override {
    const Batch& batch = batches_[slot];
    ForwardContext with_memory = context;
    with_memory.memory = memory_.get();
    if (memory_) memory_->start_segment(preceding_.at(slot));
    return {model_->compute_loss(batch, with_memory), batch.tokens.size(0) * (batch.tokens.size(1) - 1)};
  }

  TaskEvaluation evaluate(const StopCheck& stop) const override {
    const Evaluation e =
        tapeformer::evaluate(*model_, evaluation_set(), evaluation_batch_size(), 0, 0, stop, communicator());
    TaskEvaluation result{.split = e.split,
                          .example_count = e.example_count,
                          .selection_metric = e.nats_per_dim,
                          .seconds = e.seconds,
                          .metrics = {{"loss_nats", e.nats_per_dim},
                                      {"bits_per_dim", e.bits_per_dim},
                                      {"examples", e.example_count},
                                      {"seconds", e.seconds}},
                          .printed_results = {},
                          .summary = concat_text(e.nats_per_dim, " nats, ", e.bits_per_dim, " bits/dim")};
    for (const auto& [name, value] : list_named_results(e)) {
      result.printed_results.emplace_back(name, value);
      if (name != "nats_per_dim" && name != "bits_per_dim") result.metrics.emplace_back(name, value);
    }
    if (e.text_score)
      result.summary = concat_text(e.text_score->bits_per_byte(), " bits/byte, perplexity ",
                                   e.text_score->perplexity(), " per token");
    if (e.accuracy >= 0) result.summary += concat_text(", accuracy ", 100 * e.accuracy, " %");
    return result;
  }

  std::string metadata_json() const override {
    const auto tokenizer = training_set().tokenizer();
    return tokenizer ? to_json(*tokenizer) : "";
  }
  void add_metrics(double loss, MetricRecord& record) const override {
    record.emplace_back("bits_per_dim", convert_to_bits(loss));
  }
  double compute_progress_bits_per_dim(double loss) const override {
    return model_->options().head == OutputHead::logistic_mixture ? convert_to_bits(loss) : -1;
  }

 private:
  // Copies `from` to `to`. Allocates `to` only if `to` is undefined, because captured CUDA graphs read from
  // the memory of `to`.
  void copy_to_device(const Tensor& from, Tensor& to) const {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), model_->predictor.weight.device());
    to.copy_from(from);
  }

  bool captures_steps_ = false;
  std::map<int64_t, Batch> batches_;  // indexed by slot
  // For each slot, the number of tokens that precede the batch of the slot in a text stream. This number is
  // the same for all streams.
  std::map<int64_t, int64_t> preceding_;
  std::unique_ptr<SegmentMemory> memory_;  // null if the model has no segment memory
  std::map<std::pair<int64_t, BatchLayout>, Batch> on_device_;
  std::unique_ptr<AutoregressiveModel> model_;
};

}  // namespace

std::unique_ptr<Task> make_autoregressive_task(const Config& config, const DataAccessOptions& data,
                                               Device device, Communicator& processes) {
  return std::make_unique<AutoregressiveTask>(config, data.data_dir, device, processes);
}

}  // namespace tapeformer
