#include "train/tasks/dataset_batches.h"

#include <algorithm>
#include <span>
#include <utility>

#include "data/files/checksum.h"
#include "ops/view.h"
#include "train/build.h"
#include "train/distributed/gather.h"

namespace tapeformer {
namespace {

// Returns a text with the size, name and split of a data set, and a checksum of up to 64 of its examples.
std::string digest_of(const Dataset& set) {
  constexpr int64_t kExamples = 64;
  const int64_t count = std::min(set.size(), kExamples);
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i) indices.push_back(i * set.size() / count);
  const Batch batch = set.batch(indices);
  Checksum checksum;
  for (const Tensor& tensor : {batch.inputs(), batch.source})
    if (tensor.defined()) checksum.append(tensor.raw_data(), static_cast<size_t>(tensor.bytes()));
  return concat_text(set.size(), " examples of ", set.info().name, " ", set.info().split, ", CRC-32 ",
                     format_crc32(checksum.crc32));
}

// Returns the largest number of tokens in a batch, or 0 if batches have a fixed number of examples.
int64_t get_batch_tokens(const Config& config) {
  return config.data.has("batch_tokens") ? config.data.get<int64_t>("batch_tokens") : 0;
}

LoaderOptions make_loader_options(const Config& config) {
  const int64_t batch_tokens = get_batch_tokens(config);
  return {.batch_size = batch_tokens > 0 ? 0 : config.data.batch_size,
          .shuffle = config.data.shuffle,
          .seed = static_cast<uint64_t>(config.run.seed),
          .last_batch = LastBatchPolicy::drop,
          .use_streams = config.data.has("streams") && config.data.get<bool>("streams"),
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
  for (Tensor* const tensor : {&batch.tokens, &batch.mask, &batch.lengths, &batch.labels, &batch.elements,
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

void DatasetBatches::prefetch(int64_t first, int64_t end) {
  queue_ =
      std::make_unique<PrefetchQueue<StepBatch>>([this](int64_t number) { return load(number); }, first, end);
}

StepBatch DatasetBatches::next(int64_t number) {
  auto batch = queue_->next();
  check(batch.has_value(), "trainer", "no batch for step ", number);
  return std::move(*batch);
}

StepBatch DatasetBatches::load(int64_t number) const {
  const std::vector<int64_t> indices = loader_.indices_at(number);
  const auto count = static_cast<int64_t>(indices.size());
  // The slices of a batch of sentences have about equal numbers of predictions. They are padded as the whole
  // batch, because dropout masks depend on the padding.
  const Batch whole = has_lengths_ ? loader_.dataset().batch(indices) : Batch();
  const auto [first, last] = has_lengths_
                                 ? divide_predictions(whole.mask, communicator_.rank(), communicator_.size())
                                 : compute_slice_range(count, communicator_.rank(), communicator_.size());
  const Batch batch = has_lengths_ ? slice_batch(whole, first, last)
                                   : loader_.dataset().batch(std::span(indices).subspan(
                                         static_cast<size_t>(first), static_cast<size_t>(last - first)));
  BatchSlice slice{.first_example = first, .example_count = last - first};
  slice.loss_divisor = count_loss_items_(batch);
  slice.batch_loss_divisor = slice.loss_divisor;
  if (slice.example_count < count) {
    // If a batch has no mask, the loss is averaged over the same number of items for each example, so the
    // loss divisor of the whole batch is computed from the slice, without loading the whole batch.
    const bool equal_counts = !batch.mask.defined() && slice.example_count > 0;
    slice.batch_loss_divisor =
        equal_counts
            ? slice.loss_divisor / static_cast<double>(slice.example_count) * static_cast<double>(count)
            : count_loss_items_(has_lengths_ ? whole : loader_.dataset().batch(indices));
  }
  const auto epoch = static_cast<double>(loader_.count_complete_epochs(number));
  const auto number_in_epoch = number - static_cast<int64_t>(loader_.count_batches(epoch));
  return {.number = number,
          .slice = slice,
          .tensors = batch,
          .preceding_token_count = number_in_epoch * loader_.dataset().info().length};
}

std::string DatasetBatches::describe_examples(int64_t number) const {
  std::string text;
  for (const int64_t index : loader_.indices_at(number))
    text += (text.empty() ? "" : ", ") + std::to_string(index);
  return text;
}

std::string DatasetBatches::compute_digest() const {
  return digest_of(loader_.dataset());
}

std::shared_ptr<const Dataset> open_training_set(const Config& config, const TaskEnvironment& environment) {
  if (get_batch_tokens(config) == 0)
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

int64_t choose_batch_size(const Config& config, const EvaluationOptions& options) {
  if (options.batch_size > 0) return options.batch_size;
  return config.train.eval_batch_size > 0 ? config.train.eval_batch_size : config.data.batch_size;
}

std::string DatasetEvaluator::compute_digest() const {
  return digest_of(*dataset_);
}

}  // namespace tapeformer
