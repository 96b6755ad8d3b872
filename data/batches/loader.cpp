#include "data/batches/loader.h"

#include <algorithm>
#include <numeric>

#include "core/options/option_names.h"
#include "core/random/rng.h"

namespace tapeformer {

std::vector<int64_t> compute_stream_indices(int64_t example_count, int64_t stream_count,
                                            int64_t batch_number) {
  const int64_t longer = example_count % stream_count, shortest = example_count / stream_count;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < (batch_number < shortest ? stream_count : longer); ++i)
    indices.push_back(i * shortest + std::min(i, longer) + batch_number);
  return indices;
}

Loader::Loader(std::shared_ptr<const Dataset> dataset, LoaderOptions options)
    : dataset_(std::move(dataset)), options_(options) {
  const int64_t size = dataset_->size(), batch = options_.batch_size;
  const std::string set = dataset_->info().name + " " + dataset_->info().split;
  const int64_t min_batch = options_.batch_tokens > 0 ? 0 : 1;
  if (batch < min_batch)
    throw ConfigError(concat_text(name_option("LoaderOptions::batch_size"), ": expected at least ", min_batch,
                                  ", got ", batch));
  if (size < 1) throw ConfigError(concat_text(set, " has no examples"));
  if (options_.batch_tokens > 0) {
    std::vector<int64_t> lengths = dataset_->lengths();
    if (lengths.empty()) lengths.assign(static_cast<size_t>(size), dataset_->info().length + 1);
    plan_.emplace(std::move(lengths), BucketPlanOptions{.max_batch_length = options_.batch_tokens,
                                                        .max_examples = batch,
                                                        .shuffle = options_.shuffle,
                                                        .seed = options_.seed});
    return;
  }
  if (draws_examples_at_random()) {
    batches_per_epoch_ = std::max<int64_t>(1, size / dataset_->examples_per_token() / batch);
    return;
  }
  if (options_.last_batch == LastBatchPolicy::drop && batch > size)
    throw ConfigError(concat_text(name_option("LoaderOptions::batch_size"), ": expected at most the ", size,
                                  " examples of ", set, ", got ", batch));
  batches_per_epoch_ = size / batch + (options_.last_batch == LastBatchPolicy::keep && size % batch != 0);
}

int64_t Loader::batches_per_epoch() const {
  check(!plan_, "Loader", "epochs differ in their number of batches");
  return batches_per_epoch_;
}

double Loader::count_batches(double epochs) const {
  const std::lock_guard lock(mutex_);
  return plan_ ? plan_->count_batches(epochs) : epochs * static_cast<double>(batches_per_epoch_);
}

double Loader::compute_padding_share() const {
  const std::lock_guard lock(mutex_);
  return plan_.value().compute_padding_share();
}

int64_t Loader::count_complete_epochs(int64_t batches) const {
  const std::lock_guard lock(mutex_);
  return plan_ ? plan_->count_complete_epochs(batches) : batches / batches_per_epoch_;
}

std::vector<int64_t> Loader::indices_at(int64_t step) const {
  check(step >= 0, "Loader", "step ", step, " is negative");
  if (plan_) {
    const std::lock_guard lock(mutex_);
    return plan_->list_examples(step);
  }
  if (draws_examples_at_random()) return draw_indices(step);
  if (options_.use_streams)
    return compute_stream_indices(dataset_->size(), options_.batch_size, step % batches_per_epoch_);
  const int64_t first = step % batches_per_epoch_ * options_.batch_size;
  const int64_t count = std::min(options_.batch_size, dataset_->size() - first);
  std::vector<int64_t> indices(static_cast<size_t>(count));
  if (!options_.shuffle) {
    std::iota(indices.begin(), indices.end(), first);
    return indices;
  }
  const Order order = get_epoch_permutation(step / batches_per_epoch_);
  std::copy_n(order->begin() + first, count, indices.begin());
  return indices;
}

std::vector<int64_t> Loader::draw_indices(int64_t step) const {
  const RandomStream stream(options_.seed, "windows", static_cast<uint64_t>(step));
  std::vector<int64_t> indices(static_cast<size_t>(options_.batch_size));
  for (size_t i = 0; i < indices.size(); ++i)
    indices[i] = static_cast<int64_t>(stream.uniform_below(i, static_cast<uint64_t>(dataset_->size())));
  return indices;
}

Loader::Order Loader::get_epoch_permutation(int64_t epoch) const {
  const std::lock_guard lock(mutex_);
  if (epoch != cached_epoch_) {
    cached_order_ = std::make_shared<const std::vector<int64_t>>(
        make_epoch_permutation(options_.seed, epoch, dataset_->size()));
    cached_epoch_ = epoch;
  }
  return cached_order_;
}

}  // namespace tapeformer
