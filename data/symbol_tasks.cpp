#include "data/symbol_tasks.h"

#include <algorithm>

#include "data/sets/catalogue.h"

namespace tapeformer {

std::vector<std::pair<std::string, std::string>> find_length_problems(const SymbolTaskOptions& options,
                                                                      bool has_halves) {
  std::vector<std::pair<std::string, std::string>> problems;
  const auto check_length = [&](const char* name, int64_t length, const char* alternative) {
    if (length < SymbolTask::kMinLength)
      problems.emplace_back(
          name, concat_text("expected at least ", SymbolTask::kMinLength, alternative, ", got ", length));
    else if (has_halves && length % 2 != 0)
      problems.emplace_back(
          name, concat_text("the halves are equally long, expected an even number, got ", length));
  };
  check_length("max_length", options.max_length, "");
  if (options.test_length != 0) check_length("test_length", options.test_length, ", or 0 (max_length)");
  return problems;
}

SymbolTask::SymbolTask(const std::string& name, const SymbolTaskOptions& options, bool has_halves)
    : info_{.name = name,
            .split = options.split,
            .vocabulary = options.symbols + 1,
            .length =
                options.split == "test" && options.test_length > 0 ? options.test_length : options.max_length,
            .longest_split_length = std::max(options.max_length, options.test_length)},
      size_(options.example_count),
      symbol_count_(options.symbols),
      stream_(options.seed, name + " task: " + options.split) {
  const std::vector<std::string> splits = {"train", "valid", "test"};
  if (std::find(splits.begin(), splits.end(), options.split) == splits.end())
    throw ConfigError(describe_unknown_name(options.split, "a split", splits));
  if (const auto problems = find_length_problems(options, has_halves); !problems.empty())
    throw ConfigError(concat_text(name, ": ", problems.front().first, ": ", problems.front().second));
  if (options.symbols < 1)
    throw ConfigError(concat_text(name, ": ", options.symbols, " symbols, expected at least 1"));
  if (options.example_count < 0)
    throw ConfigError(
        concat_text(name, ": ", options.example_count, " examples, expected 0 (for all) or more"));
  if (size_ == 0) size_ = options.split == "train" ? kTrainExampleCount : kEvalExampleCount;
}

Batch SymbolTask::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t length = info_.length;
  Batch batch;
  batch.tokens = Tensor::zeros({count, length + 1}, DType::int64);
  batch.mask = Tensor::zeros({count, length}, DType::uint8);
  if (has_token_targets()) batch.token_targets = Tensor::zeros({count, length}, DType::int64);
  for (int64_t i = 0; i < count; ++i)
    write_example(
        stream_.at_step(static_cast<uint64_t>(indices[static_cast<size_t>(i)])),
        {.tokens = batch.tokens.data<int64_t>() + i * (length + 1),
         .mask = batch.mask.data<uint8_t>() + i * length,
         .targets = has_token_targets() ? batch.token_targets.data<int64_t>() + i * length : nullptr});
  if (info_.vocabulary <= 256) {
    batch.tokens = batch.tokens.to(DType::uint8);
    if (has_token_targets()) batch.token_targets = batch.token_targets.to(DType::uint8);
  }
  return batch;
}

void CopyTask::write_example(const RandomStream& stream, const Example& example) const {
  const int64_t min_symbols = info().length / 4, max_symbols = (info().length - 1) / 2 - 1;
  const auto choices = static_cast<uint64_t>(max_symbols - min_symbols + 1);
  const auto n = min_symbols + static_cast<int64_t>(stream.uniform_below(0, choices));
  for (int64_t i = 0; i < n; ++i)
    example.tokens[i] = example.tokens[n + 1 + i] = static_cast<int64_t>(draw_symbol(stream, 1 + i));
  std::fill(example.mask + n - 1, example.mask + 2 * n, uint8_t{1});
}

void DuplicationTask::write_example(const RandomStream& stream, const Example& example) const {
  const int64_t half = info().length / 2;
  for (int64_t i = 1; i < half; ++i)
    example.tokens[i] = example.tokens[half + i] = static_cast<int64_t>(draw_symbol(stream, i));
  std::fill(example.mask + half, example.mask + 2 * half - 1, uint8_t{1});
}

}  // namespace tapeformer
