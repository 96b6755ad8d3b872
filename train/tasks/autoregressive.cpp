// A task of models of images, texts and sequences: an autoregressive model, trained on a Dataset.
#include <algorithm>
#include <map>
#include <numbers>
#include <span>
#include <utility>

#include "core/system/log.h"
#include "data/batches/loader.h"
#include "data/files/checksum.h"
#include "train/build.h"
#include "train/evaluate.h"
#include "train/tasks/task.h"
#include "train/tasks/text/description.h"

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

// Throws ConfigError unless `batch` is a multiple of the number of processes. The message contains the
// nearest valid sizes.
void require_divisible(int64_t batch, int64_t processes) {
  if (batch % processes == 0) return;
  const int64_t below = batch / processes * processes, above = below + processes;
  throw ConfigError(concat_text("data.batch_size = ", batch, " cannot be divided by ", processes,
                                " processes; the nearest ", below > 0 ? "sizes are " : "size is ",
                                below > 0 ? concat_text(below, " and ") : "", above));
}

// Returns a text with the size of a data set and the checksum of up to 64 examples that are spread over the
// set.
std::string digest_of(const Dataset& set) {
  constexpr int64_t kExamples = 64;
  const int64_t count = std::min(set.size(), kExamples);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * set.size() / count);
  const Tensor tokens = set.batch(indices).tokens;
  Checksum checksum;
  checksum.append(tokens.raw(), static_cast<size_t>(tokens.bytes()));
  return concat_text(set.size(), " examples of ", set.info().name, " ", set.info().split, ", CRC-32 ",
                     crc32_text(checksum.crc32));
}

// The slice of a batch that this process computes, in host memory.
struct SlicedBatch {
  Batch batch;
  BatchSlice slice;
};

class AutoregressiveTask final : public Task {
 public:
  AutoregressiveTask(const Config& config, const std::string& data_dir, Device device,
                     Communicator& processes)
      : processes_(processes) {
    require_divisible(config.data.batch_size, processes.size());
    check_evaluation_files(config);
    const auto training_set =
        make_split(config, "train", {.data_dir = data_dir, .random_windows = config.data.shuffle});
    evaluation_set_ = make_split(config, evaluation_split(config),
                                 {.data_dir = data_dir, .tokenizer = training_set->tokenizer()});
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
  int64_t training_examples() const override {
    return loader_->dataset().size() / loader_->dataset().overlap();
  }
  int64_t evaluation_examples() const override { return evaluation_set_->size(); }

  double batches_in(double epochs) const override {
    return epochs * static_cast<double>(loader_->batches_per_epoch());
  }
  int64_t epochs_done(int64_t batches) const override { return batches / loader_->batches_per_epoch(); }

  void prepare_batches(int64_t first, int64_t last) override {
    prefetch_ =
        std::make_unique<Prefetch<SlicedBatch>>([this](int64_t number) { return load(number); }, first, last);
  }

  std::optional<BatchLayout> fetch(int64_t number, int64_t slot) override {
    const auto sliced = prefetch_->next();
    check(sliced.has_value(), "trainer", "no batch for step ", number);
    const Batch& batch = sliced->batch;
    batches_[slot] = batch;
    slices_[slot] = sliced->slice;
    // If the batch has a mask, the host computes the weights of the loss chunks from the values of the mask.
    // A graph cannot repeat this computation.
    if (!captures_steps_ || (batch.mask.defined() && model_->options().loss_chunks > 1)) return std::nullopt;
    const BatchLayout layout = layout_of(batch);
    Batch& on_device = on_device_[{slot, layout}];
    copy_to_device(batch.tokens, on_device.tokens);
    if (batch.mask.defined()) copy_to_device(batch.mask, on_device.mask);
    batches_[slot] = on_device;
    return layout;
  }
  BatchSlice slice(int64_t slot) const override { return slices_.at(slot); }
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
    const Evaluation e =
        tapeformer::evaluate(*model_, *evaluation_set_, evaluation_batch_, 0, 0, stop, processes_);
    TaskEvaluation result{.split = e.split,
                          .examples = e.examples,
                          .criterion = e.nats_per_dim,
                          .seconds = e.seconds,
                          .metrics = {{"loss_nats", e.nats_per_dim},
                                      {"bits_per_dim", e.bits_per_dim},
                                      {"examples", e.examples},
                                      {"seconds", e.seconds}},
                          .figures = {},
                          .text = concat_text(e.nats_per_dim, " nats, ", e.bits_per_dim, " bits/dim")};
    for (const auto& [name, value] : named_results(e)) {
      result.figures.emplace_back(name, value);
      if (name != "nats_per_dim" && name != "bits_per_dim") result.metrics.emplace_back(name, value);
    }
    if (e.text)
      result.text =
          concat_text(e.text->bits_per_byte(), " bits/byte, perplexity ", e.text->perplexity(), " per token");
    if (e.accuracy >= 0) result.text += concat_text(", accuracy ", 100 * e.accuracy, " %");
    return result;
  }

  std::string data_digest() const override {
    return digest_of(loader_->dataset()) + "; " + digest_of(*evaluation_set_);
  }

  std::string description() const override {
    const auto tokenizer = loader_->dataset().tokenizer();
    return tokenizer ? to_json(*tokenizer) : "";
  }
  void add_metrics(double loss, MetricRecord& record) const override {
    record.emplace_back("bits_per_dim", bits(loss));
  }
  double shown_bits(double loss) const override {
    return model_->options().head == Head::logistic_mixture ? bits(loss) : -1;
  }

 private:
  // Loads the slice of batch `number`. If there is a mask, also loads the whole batch to count its
  // predictions.
  SlicedBatch load(int64_t number) const {
    const std::vector<int64_t> indices = loader_->indices_at(number);
    const auto count = static_cast<int64_t>(indices.size());
    const auto [first, last] = slice_range(count, processes_.rank(), processes_.size());
    const Batch batch = loader_->dataset().batch(
        std::span(indices).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)));
    BatchSlice slice{.first_example = first, .examples = last - first};
    slice.loss_count = unmasked_tokens(batch);
    slice.batch_loss_count = slice.loss_count;
    if (slice.examples < count)
      slice.batch_loss_count = batch.mask.defined() ? unmasked_tokens(loader_->dataset().batch(indices))
                                                    : static_cast<double>(count * (batch.tokens.size(1) - 1));
    return {batch, slice};
  }
  // Copies a tensor to the device of the model. The first call allocates `to`; later calls keep its address,
  // which captured graphs use.
  void copy_to_device(const Tensor& from, Tensor& to) const {
    if (!to.defined()) to = Tensor::empty(from.shape(), from.dtype(), model_->predictor.weight.device());
    to.copy_from(from);
  }

  bool captures_steps_ = false;
  Communicator& processes_;
  std::map<int64_t, Batch> batches_;      // indexed by slot
  std::map<int64_t, BatchSlice> slices_;  // indexed by slot
  std::map<std::pair<int64_t, BatchLayout>, Batch> on_device_;
  std::shared_ptr<const Dataset> evaluation_set_;
  std::shared_ptr<const Loader> loader_;
  std::unique_ptr<AutoregressiveModel> model_;
  int64_t evaluation_batch_ = 0;
  std::unique_ptr<Prefetch<SlicedBatch>> prefetch_;  // last member: its thread uses the other members
};

}  // namespace

std::unique_ptr<Task> make_autoregressive_task(const Config& config, const DataAccess& data, Device device,
                                               Communicator& processes) {
  return std::make_unique<AutoregressiveTask>(config, data.data_dir, device, processes);
}

}  // namespace tapeformer
