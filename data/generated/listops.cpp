// ListOps (Nangia and Bowman 2018) as in the Long Range Arena (Tay et al. 2020, section 2.2.1). A sequence
// contains nested operations on digits, such as "[MAX 4 [MIN 2 7 ] 0 ]". The label of a sequence is the
// result of the expression.
#include <algorithm>
#include <numeric>
#include <vector>

#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "data/generated/generated_set.h"

namespace tapeformer {
namespace {

constexpr GeneratedSet::Sizes kListOpsSizes{.train = 96000,
                                            .evaluation = 2000};  // as in the Long Range Arena
constexpr int64_t kClasses = 10;
// The tokens: 0 is padding, then the digits 0 to 9, the operations [MIN, [MAX, [MED and [SM, and ].
constexpr int64_t kVocabulary = 16;
constexpr double kOperationShare = 0.25;  // probability that an operand is an operation
constexpr int64_t kAttempts = 1'000'000;  // maximum number of random expressions per example
constexpr uint8_t kFirstDigit = 1, kFirstOperation = 11, kEnd = 15;
constexpr int64_t kOperations = 4;

// Returns the result of an operation on `values`. The operation is the minimum if `index` is 0, the maximum
// if 1, the median (rounded down) if 2, and the sum modulo 10 if 3.
int64_t compute_result(int64_t index, std::vector<int64_t> values) {
  if (index == 3) return std::accumulate(values.begin(), values.end(), int64_t{0}) % 10;
  std::sort(values.begin(), values.end());
  if (index < 2) return index == 0 ? values.front() : values.back();
  const size_t upper = values.size() / 2;
  return values.size() % 2 == 1 ? values[upper] : (values[upper - 1] + values[upper]) / 2;
}

struct ListOpsOptions {
  // Maximum and minimum number of tokens in a sequence. The Long Range Arena uses 2,000 and 500.
  int64_t max_length = 128, min_length = 0;
  int64_t max_depth = 10;  // maximum number of nested levels; operands on the last level are digits
  int64_t max_args = 10;
};

OptionTable<ListOpsOptions> make_table() {
  using O = ListOpsOptions;
  OptionTable<O> table(OptionUse::data);
  add_max_length(table);
  add_min_length(table);
  table.add("max_depth", &O::max_depth, "levels of nested operations").require_range(2, 1000);
  table.add("max_args", &O::max_args, "largest number of operands of an operation").require_range(2, 1000);
  return table;
}

// An expression with its result.
struct ListOpsExample {
  std::vector<uint8_t> tokens;
  int64_t value = 0;  // 0 to 9
};

// A generator of random expressions. draw() fails if the expression has more than options.max_length tokens.
class ExpressionDraw {
 public:
  ExpressionDraw(const ListOpsOptions& options, const Draws& draws) : options_(options), draws_(draws) {}

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
    if (depth >= options_.max_depth || draws_.uniform() > kOperationShare) {
      const int64_t digit = draws_.below(kClasses);
      append(kFirstDigit + static_cast<uint8_t>(digit));
      return digit;
    }
    const int64_t operation = draws_.below(kOperations), count = 2 + draws_.below(options_.max_args - 1);
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
  Draws draws_;
  bool failed_ = false;
  ListOpsExample example_;
};

class ListOps final : public GeneratedSet {
 public:
  // Throws ConfigError if generate_example(0) finds no expression.
  ListOps(const ListOpsOptions& options, const DatasetRequest& request)
      : GeneratedSet(request, kListOpsSizes, "listops: ",
                     {.name = "listops", .vocabulary = kVocabulary, .length = options.max_length - 1}),
        options_(options) {
    generate_example(0);
  }
  static OptionProblems find_problems(const ListOpsOptions& options) {
    return find_min_length_problems(options);
  }

  // Returns a batch with tokens, lengths and labels. `tokens` is uint8 (batch, max_length), and shorter
  // sequences are padded with 0. `lengths` and `labels` are int64 (batch,).
  Batch batch(std::span<const int64_t> indices) const override {
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

 private:
  // Throws ConfigError if none of a million random expressions has between min_length and max_length tokens.
  ListOpsExample generate_example(int64_t index) const {
    const int64_t shortest = choose_min_length(options_);
    ExpressionDraw expression(options_, draws_of(index));
    for (int64_t attempt = 0; attempt < kAttempts; ++attempt)
      if (expression.draw(shortest)) return expression.example();
    throw ConfigError(concat_text(
        "listops: none of ", kAttempts, " random expressions has ", shortest, " to ", options_.max_length,
        " tokens; increase ", name_option("ListOpsOptions::max_depth"), ", ",
        name_option("ListOpsOptions::max_args"), " or ", name_option("ListOpsOptions::max_length"),
        ", or decrease ", name_option("ListOpsOptions::min_length")));
  }

  ListOpsOptions options_;
};

}  // namespace

std::vector<DatasetKind> make_expression_kinds() {
  return {make_generated_kind<ListOps>({.name = "listops",
                                        .type = DatasetType::expressions,
                                        .model_types = {"classification"},
                                        .classes = kClasses,
                                        .has_validation_split = [](const OptionValues&) { return true; }},
                                       make_table())};
}

}  // namespace tapeformer
