#include "train/tasks/dataset_batches.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/stopwatch.h"
#include "ops/view.h"
#include "train/build.h"
#include "train/distributed/gather.h"

namespace tapeformer {
namespace {

// Returns the largest number of tokens or frames in a batch, or 0 if batches have a fixed number of examples.
int64_t get_batch_tokens(const DataConfig& data) {
  for (const char* option : {"batch_tokens", "max_frames"})
    if (data.has(option)) return data.get<int64_t>(option);
  return 0;
}

LoaderOptions make_loader_options(const Config& config) {
  const DataConfig& data = config.data;
  const int64_t batch_tokens = get_batch_tokens(data);
  // The batches of utterances have two limits.
  const bool limits_examples = batch_tokens == 0 || data.has("max_frames");
  return {.batch_size = limits_examples ? data.batch_size : 0,
          .shuffle = data.shuffle,
          .seed = static_cast<uint64_t>(config.run.seed),
          .last_batch = LastBatchPolicy::drop,
          .use_streams = data.has("streams") && data.get<bool>("streams"),
          .batch_tokens = batch_tokens};
}

// Divides the rows of `mask` (rows, length) into `size` consecutive ranges with about the same number of
// predictions, and returns the range of process `rank`.
std::pair<int64_t, int64_t> divide_predictions(const Tensor& mask, int rank, int size) {
  const int64_t rows = mask.size(0), length = mask.size(1);
  std::vector<int64_t> before = {0};  // number of predictions before each row
  for (const uint8_t* row = mask.data<uint8_t>(); row != mask.data<uint8_t>() + rows * length; row += length)
    before.push_back(before.back() + std::count(row, row + length, 1));
  const auto find_boundary = [&](int part) -> int64_t {
    const int64_t wanted = before.back() * part / size;
    return part == size ? rows : std::lower_bound(before.begin(), before.end(), wanted) - before.begin();
  };
  return {find_boundary(rank), find_boundary(rank + 1)};
}

// Returns examples [first, last) of a batch.
Batch slice_batch(Batch batch, int64_t first, int64_t last) {
  for (Tensor* const tensor :
       {&batch.tokens, &batch.mask, &batch.lengths, &batch.labels, &batch.label_lengths, &batch.elements,
        &batch.targets, &batch.token_targets, &batch.source, &batch.source_lengths})
    if (tensor->defined()) *tensor = contiguous(slice(*tensor, 0, first, last));
  return batch;
}

}  // namespace

DatasetBatches::DatasetBatches(const Config& config, std::shared_ptr<const Dataset> dataset,
                               Communicator& processes, LossCount count_loss_items)
    : communicator_(processes),
      count_loss_items_(std::move(count_loss_items)),
      loader_(std::move(dataset), make_loader_options(config)),
      has_lengths_(!loader_.dataset().lengths().empty()) {}

StepBatch DatasetBatches::next(int64_t number) {
  if (!queue_ || queue_->next_step() != number) {
    queue_.reset();  // ends its thread
    queue_ = std::make_unique<PrefetchQueue<StepBatch>>([this](int64_t n) { return load(n); }, number);
  }
  return queue_->next();
}

StepBatch DatasetBatches::load(int64_t number) const {
  const Dataset& set = loader_.dataset();
  const std::vector<int64_t> indices = loader_.indices_at(number);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t epoch = loader_.count_complete_epochs(number);
  // A slice of a batch of padded examples is padded as the whole batch, because dropout masks depend on the
  // padding. The slices of sentences have about equal numbers of predictions.
  const Batch whole = has_lengths_ ? set.training_batch(indices, {number, epoch}) : Batch();
  const auto [first, last] = whole.mask.defined()
                                 ? divide_predictions(whole.mask, communicator_.rank(), communicator_.size())
                                 : compute_slice_range(count, communicator_.rank(), communicator_.size());
  const Batch batch = has_lengths_
                          ? slice_batch(whole, first, last)
                          : set.training_batch(std::span(indices).subspan(static_cast<size_t>(first),
                                                                          static_cast<size_t>(last - first)),
                                               {number, epoch});
  BatchSlice slice{.first_example = first, .example_count = last - first};
  slice.loss_divisor = count_loss_items_(batch);
  slice.batch_loss_divisor = slice.loss_divisor;
  if (slice.example_count < count) {
    // If a batch has no mask, the loss is averaged over the same number of items for each example, so the
    // loss divisor of the whole batch is computed from the slice, without loading the whole batch.
    const bool equal_counts = !has_lengths_ && !batch.mask.defined() && slice.example_count > 0;
    slice.batch_loss_divisor = equal_counts ? slice.loss_divisor / static_cast<double>(slice.example_count) *
                                                  static_cast<double>(count)
                                            : count_loss_items_(has_lengths_ ? whole : set.batch(indices));
  }
  const auto number_in_epoch =
      number - static_cast<int64_t>(loader_.count_batches(static_cast<double>(epoch)));
  return {.number = number,
          .slice = slice,
          .examples = batch,
          .preceding_token_count = number_in_epoch * set.info().length};
}

std::string DatasetBatches::describe_examples(int64_t number) const {
  std::string text;
  for (const int64_t index : loader_.indices_at(number))
    text += (text.empty() ? "" : ", ") + loader_.dataset().describe_example(index);
  return text;
}

std::shared_ptr<const Dataset> open_training_set(const Config& config, const TaskEnvironment& environment) {
  if (get_batch_tokens(config.data) == 0)
    require_divisible_batch_size("data.batch_size", config.data.batch_size, environment.processes);
  check_evaluation_files(config);
  return make_split(config, "train",
                    {.data_dir = environment.data.data_dir,
                     .tokenizer = environment.tokens.tokenizer,
                     .use_random_windows = config.data.shuffle,
                     .token_advice = environment.tokens.advice});
}

std::shared_ptr<const Dataset> open_evaluation_set(Config config, const TaskEnvironment& environment,
                                                   std::shared_ptr<const Tokenizer> tokenizer,
                                                   const std::string& split, std::optional<int64_t> limit) {
  if (limit) config.data.eval_limit = *limit;
  if (limit.value_or(0) > 0) config.data.limit = *limit;
  return make_split(config, split.empty() ? choose_evaluation_split(config) : split,
                    {.data_dir = environment.data.data_dir,
                     .tokenizer = std::move(tokenizer),
                     .token_advice = environment.tokens.advice});
}

TaskEvaluation DatasetEvaluator::evaluate(const StopCheck& stop) const {
  const Stopwatch watch(kCpu);
  TaskEvaluation result = evaluate_(*dataset_, stop);
  result.split = dataset_->info().split;
  if (result.example_count == 0) result.example_count = count_examples();
  result.seconds = watch.measure_elapsed_seconds();
  return result;
}

int64_t choose_batch_size(const Config& config, const EvaluationOptions& options) {
  if (options.batch_size > 0) return options.batch_size;
  return config.train.eval_batch_size > 0 ? config.train.eval_batch_size : config.data.batch_size;
}

}  // namespace tapeformer
