// Options that several families of data sets have. A config key has one type and one range, so kinds with an
// option of the same name declare it the same way.
#pragma once

#include "core/base/errors.h"
#include "core/options/option_table.h"
#include "data/dataset_kind.h"

namespace tapeformer {

inline constexpr int64_t kMinSequenceLength = 8;
inline constexpr double kMaxSize = 1 << 20;  // the product of three such numbers fits in int64_t

// Each of the following functions adds the option to the table of a struct with a member of its name.

template <class Options>
OptionSpec& add_max_length(OptionTable<Options>& table) {
  return table
      .add("max_length", &Options::max_length,
           "sequence length; listops and sets: largest number of tokens or elements")
      .use_for(OptionUse::model)
      .require_range(kMinSequenceLength, kMaxSize);
}

template <class Options>
void add_test_length(OptionTable<Options>& table) {
  table.add("test_length", &Options::test_length, "sequence length of the test split; 0: max_length")
      .use_for(OptionUse::model)
      .require_range(0, kMaxSize);
}

template <class Options>
void add_min_length(OptionTable<Options>& table) {
  table
      .add("min_length", &Options::min_length,
           "smallest number of tokens or elements; 0: a quarter of max_length")
      .require_range(0, kMaxSize);
}

template <class Options>
int64_t choose_min_length(const Options& options) {
  return options.min_length > 0 ? options.min_length : options.max_length / 4;
}

template <class Options>
OptionProblems find_min_length_problems(const Options& options) {
  OptionProblems problems;
  problems.require(
      options.min_length <= options.max_length, "min_length",
      concat_text("expected at most max_length = ", options.max_length, ", got ", options.min_length));
  return problems;
}

template <class Options>
void add_symbols(OptionTable<Options>& table) {
  table.add("symbols", &Options::symbols, "symbols besides the separator")
      .use_for(OptionUse::model)
      .require_range(1, 65535);
}

// Adds the options of data sets that are a path with splits: texts and folders of pictures.
template <class Options>
void add_split_options(OptionTable<Options>& table, bool has_path = true) {
  if (has_path)
    table
        .add("path", &Options::path,
             "text: file, folder or pattern such as \"books/*.txt\", plain or compressed; pictures: folder")
        .mark_as_path()
        .allow_change_on_resume();
  table
      .add("valid_share", &Options::valid_share,
           "share of the data for validation; text: before the test share")
      .require_fraction_below_one();
  table.add("test_share", &Options::test_share, "share of the data for tests; text: at its end")
      .require_fraction_below_one();
  table.add("valid_path", &Options::valid_path, "data for validation, as in path; empty: a share of path")
      .mark_as_path()
      .allow_change_on_resume();
  table.add("test_path", &Options::test_path, "data for tests, as in path; empty: a share of path")
      .mark_as_path()
      .allow_change_on_resume();
}

// Returns the problems of the options of add_split_options(). `needed_path` describes the path, or is empty
// if the kind has no option `path`.
template <class Options>
OptionProblems find_split_problems(const Options& options, const std::string& needed_path) {
  OptionProblems problems;
  problems.require(needed_path.empty() || !options.path.empty(), "path", needed_path);
  const double sum = options.valid_share + options.test_share;
  problems.require(sum < 1, "test_share",
                   concat_text("valid_share + test_share is ", sum, ", expected less than 1"));
  return problems;
}

template <class Options>
bool has_validation_part(const Options& options) {
  return options.valid_share > 0 || !options.valid_path.empty();
}

}  // namespace tapeformer
