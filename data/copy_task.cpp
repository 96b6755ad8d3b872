#include "data/copy_task.h"

#include <algorithm>

#include "data/catalogue.h"

namespace tapeformer {

CopyTask::CopyTask(const CopyTaskOptions& options)
    : info_{"copy", options.split, options.symbols + 1, options.max_length},
      size_(options.count),
      symbols_(options.symbols),
      stream_(options.seed, "copy task: " + options.split) {
  const std::vector<std::string> splits = {"train", "valid", "test"};
  if (std::find(splits.begin(), splits.end(), options.split) == splits.end())
    throw ConfigError(unknown_name_text(options.split, "a split", splits));
  if (options.max_length < 8)
    throw ConfigError(concat_text("copy: max_length ", options.max_length, ", expected at least 8"));
  if (options.symbols < 1)
    throw ConfigError(concat_text("copy: ", options.symbols, " symbols, expected at least 1"));
  if (options.count < 0)
    throw ConfigError(concat_text("copy: ", options.count, " examples, expected 0 (for all) or more"));
  if (size_ == 0) size_ = options.split == "train" ? kTrainExamples : kEvalExamples;
}

Batch CopyTask::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t length = info_.length;
  const bool bytes = info_.vocabulary <= 256;
  Batch batch;
  batch.tokens = Tensor::zeros({count, length + 1}, bytes ? DType::uint8 : DType::int64);
  batch.mask = Tensor::zeros({count, length}, DType::uint8);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = indices[static_cast<size_t>(i)];
    uint8_t* mask = batch.mask.data<uint8_t>() + i * length;
    if (bytes)
      write_example(index, batch.tokens.data<uint8_t>() + i * (length + 1), mask);
    else
      write_example(index, batch.tokens.data<int64_t>() + i * (length + 1), mask);
  }
  return batch;
}

// Tokens and mask are zero before.
template <class T>
void CopyTask::write_example(int64_t index, T* tokens, uint8_t* mask) const {
  const RandomStream stream = stream_.at_step(static_cast<uint64_t>(index));
  const int64_t shortest = info_.length / 4, longest = (info_.length - 4) / 2;
  const auto choices = static_cast<uint64_t>(longest - shortest + 1);
  const auto n = shortest + static_cast<int64_t>(stream.below(0, choices));
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t symbol = 1 + stream.below(static_cast<uint64_t>(1 + i), static_cast<uint64_t>(symbols_));
    tokens[i] = tokens[n + 1 + i] = static_cast<T>(symbol);
  }
  std::fill(mask + n - 1, mask + 2 * n, uint8_t{1});
}

}  // namespace tapeformer
