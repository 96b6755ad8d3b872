#include "train/tasks/dataset_task.h"

#include <algorithm>
#include <span>
#include <utility>

#include "data/files/checksum.h"
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
  const Tensor tokens = set.batch(indices).inputs();
  Checksum checksum;
  checksum.append(tokens.raw_data(), static_cast<size_t>(tokens.bytes()));
  return concat_text(set.size(), " examples of ", set.info().name, " ", set.info().split, ", CRC-32 ",
                     format_crc32(checksum.crc32));
}

}  // namespace

DatasetTask::DatasetTask(const Config& config, const std::string& data_dir, Communicator& processes,
                         LossCount loss_divisor)
    : communicator_(processes), count_loss_items_(std::move(loss_divisor)) {
  require_divisible_batch_size("data.batch_size", config.data.batch_size, processes);
  check_evaluation_files(config);
  const auto training_set =
      make_split(config, "train", {.data_dir = data_dir, .use_random_windows = config.data.shuffle});
  evaluation_set_ = make_split(config, choose_evaluation_split(config),
                               {.data_dir = data_dir, .tokenizer = training_set->tokenizer()});
  loader_ = std::make_shared<const Loader>(
      training_set,
      LoaderOptions{.batch_size = config.data.batch_size,
                    .shuffle = config.data.shuffle,
                    .seed = static_cast<uint64_t>(config.run.seed),
                    .last_batch = LastBatchPolicy::drop,
                    .use_streams = config.data.has("streams") && config.data.get<bool>("streams")});
  evaluation_batch_size_ =
      config.train.eval_batch_size > 0 ? config.train.eval_batch_size : config.data.batch_size;
}

void DatasetTask::prefetch_batches(int64_t first, int64_t end) {
  prefetch_queue_ = std::make_unique<PrefetchQueue<SlicedBatch>>(
      [this](int64_t number) { return load_slice(number); }, first, end);
}

Batch DatasetTask::next_batch(int64_t number, int64_t slot) {
  const auto sliced = prefetch_queue_->next();
  check(sliced.has_value(), "trainer", "no batch for step ", number);
  slices_[slot] = sliced->slice;
  return sliced->batch;
}

DatasetTask::SlicedBatch DatasetTask::load_slice(int64_t number) const {
  const std::vector<int64_t> indices = loader_->indices_at(number);
  const auto count = static_cast<int64_t>(indices.size());
  const auto [first, last] = compute_slice_range(count, communicator_.rank(), communicator_.size());
  const Batch batch = loader_->dataset().batch(
      std::span(indices).subspan(static_cast<size_t>(first), static_cast<size_t>(last - first)));
  BatchSlice slice{.first_example = first, .example_count = last - first};
  slice.loss_divisor = count_loss_items_(batch);
  slice.batch_loss_divisor = slice.loss_divisor;
  if (slice.example_count < count) {
    // If a batch has no mask, the loss is averaged over the same number of items for each example, so the
    // loss divisor of the whole batch is computed from the slice, without loading the whole batch.
    const bool equal_counts = !batch.mask.defined() && slice.example_count > 0;
    slice.batch_loss_divisor = equal_counts ? slice.loss_divisor / static_cast<double>(slice.example_count) *
                                                  static_cast<double>(count)
                                            : count_loss_items_(loader_->dataset().batch(indices));
  }
  return {batch, slice};
}

std::string DatasetTask::describe_examples(int64_t number) const {
  std::string text;
  for (const int64_t index : loader_->indices_at(number))
    text += (text.empty() ? "" : ", ") + std::to_string(index);
  return text;
}

DataDigest DatasetTask::compute_data_digest() const {
  return {digest_of(loader_->dataset()), digest_of(*evaluation_set_)};
}

}  // namespace tapeformer
