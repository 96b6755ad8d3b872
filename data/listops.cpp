#include "data/listops.h"

#include <algorithm>
#include <numeric>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "data/sets/catalogue.h"

namespace tapeformer {
namespace {

constexpr double kOperationShare = 0.25;  // probability that an operand is an operation
constexpr int64_t kAttempts = 1'000'000;  // maximum number of random expressions per example
constexpr uint8_t kFirstDigit = 1, kFirstOperation = 11, kEnd = 15;
constexpr uint64_t kOperations = 4;

// Returns the result of an operation on `values`. The operation is the minimum if `index` is 0, the maximum
// if 1, the median (rounded down) if 2, and the sum modulo 10 if 3.
int64_t compute_result(uint64_t index, std::vector<int64_t> values) {
  if (index == 3) return std::accumulate(values.begin(), values.end(), int64_t{0}) % 10;
  std::sort(values.begin(), values.end());
  if (index < 2) return index == 0 ? values.front() : values.back();
  const size_t upper = values.size() / 2;
  return values.size() % 2 == 1 ? values[upper] : (values[upper - 1] + values[upper]) / 2;
}

// A generator of random expressions. draw() fails if the expression has more than options.max_length tokens.
class ExpressionDraw {
 public:
  ExpressionDraw(const ListOpsOptions& options, const RandomStream& stream)
      : options_(options), stream_(stream) {}

  // Draws another expression. Returns whether the expression has at least `min_length` and at most
  // options.max_length tokens.
  bool draw(int64_t min_length) {
    example_.tokens.clear();
    failed_ = false;
    example_.value = draw_operand(1);
    return !failed_ && static_cast<int64_t>(example_.tokens.size()) >= min_length;
  }
  const ListOpsExample& example() const { return example_; }

 private:
  int64_t draw_operand(int64_t depth) {
    if (depth >= options_.max_depth || stream_.uniform(number_++) > kOperationShare) {
      const uint64_t digit = stream_.uniform_below(number_++, ListOps::kClassCount);
      append(kFirstDigit + static_cast<uint8_t>(digit));
      return static_cast<int64_t>(digit);
    }
    const uint64_t operation = stream_.uniform_below(number_++, kOperations);
    const auto count = 2 + static_cast<int64_t>(stream_.uniform_below(
                               number_++, static_cast<uint64_t>(options_.max_args - 1)));
    append(kFirstOperation + static_cast<uint8_t>(operation));
    std::vector<int64_t> values;
    for (int64_t i = 0; i < count && !failed_; ++i) values.push_back(draw_operand(depth + 1));
    append(kEnd);
    return failed_ ? 0 : compute_result(operation, std::move(values));
  }
  void append(uint8_t token) {
    failed_ = failed_ || static_cast<int64_t>(example_.tokens.size()) == options_.max_length;
    if (!failed_) example_.tokens.push_back(token);
  }

  const ListOpsOptions& options_;
  RandomStream stream_;
  uint64_t number_ = 0;  // index of the next random number of the stream
  bool failed_ = false;
  ListOpsExample example_;
};

int64_t choose_min_length(const ListOpsOptions& options) {
  return options.min_length > 0 ? options.min_length : options.max_length / 4;
}

}  // namespace

ListOps::ListOps(const ListOpsOptions& options)
    : options_(options),
      info_{"listops", options.split, static_cast<int64_t>(kTokenStrings.size()), options.max_length - 1},
      size_(options.example_count),
      stream_(options.seed, "listops: " + options.split) {
  const std::vector<std::string> splits = {"train", "valid", "test"};
  if (std::find(splits.begin(), splits.end(), options.split) == splits.end())
    throw ConfigError(describe_unknown_name(options.split, "a split", splits));
  const auto require = [](bool condition, const char* name, int64_t value, const std::string& expected) {
    if (!condition) throw ConfigError(concat_text("listops: ", name, " ", value, ", expected ", expected));
  };
  require(options.max_length >= 8, "max_length", options.max_length, "at least 8");
  require(options.min_length >= 0 && options.min_length <= options.max_length, "min_length",
          options.min_length, concat_text("0 to max_length, ", options.max_length));
  require(options.max_depth >= 2, "max_depth", options.max_depth, "at least 2");
  require(options.max_args >= 2, "max_args", options.max_args, "at least 2");
  require(options.example_count >= 0, "count", options.example_count, "0 (for all) or more");
  if (size_ == 0) size_ = options.split == "train" ? kTrainExampleCount : kEvalExampleCount;
  generate_example(0);
}

ListOpsExample ListOps::generate_example(int64_t index) const {
  const int64_t shortest = choose_min_length(options_);
  ExpressionDraw expression(options_, stream_.at_step(static_cast<uint64_t>(index)));
  for (int64_t attempt = 0; attempt < kAttempts; ++attempt)
    if (expression.draw(shortest)) return expression.example();
  throw ConfigError(
      concat_text("listops: none of ", kAttempts, " random expressions has ", shortest, " to ",
                  options_.max_length, " tokens; increase ", name_option("ListOpsOptions::max_depth"), ", ",
                  name_option("ListOpsOptions::max_args"), " or ", name_option("ListOpsOptions::max_length"),
                  ", or decrease ", name_option("ListOpsOptions::min_length")));
}

Batch ListOps::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  Batch batch;
  batch.tokens = Tensor::zeros({count, options_.max_length}, DType::uint8);
  batch.lengths = Tensor::empty({count}, DType::int64);
  batch.labels = Tensor::empty({count}, DType::int64);
  for (int64_t i = 0; i < count; ++i) {
    const ListOpsExample one = generate_example(indices[static_cast<size_t>(i)]);
    std::copy(one.tokens.begin(), one.tokens.end(), batch.tokens.data<uint8_t>() + i * options_.max_length);
    batch.lengths.data<int64_t>()[i] = static_cast<int64_t>(one.tokens.size());
    batch.labels.data<int64_t>()[i] = one.value;
  }
  return batch;
}

}  // namespace tapeformer
