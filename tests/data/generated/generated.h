// Functions for tests of generated data sets.
#pragma once

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "data/dataset_kind.h"

namespace tapeformer::test {

// Returns a data set with these options, and the defaults of the other options.
inline std::shared_ptr<const Dataset> make_set(const std::string& name, const OptionValues& changed = {},
                                               const DatasetRequest& request = {}) {
  const DatasetKind& kind = find_dataset_kind(name);
  return kind.make(complete_options(kind.options, changed), request);
}

// Returns the problems of options as lines "option: problem".
inline std::string problems_of(const std::string& name, const OptionValues& changed) {
  const DatasetKind& kind = find_dataset_kind(name);
  std::string text;
  for (const auto& [option, problem] : kind.find_problems(complete_options(kind.options, changed)))
    text += option + ": " + problem + "\n";
  return text;
}

// Returns options with integer values.
inline OptionValues integers(std::initializer_list<std::pair<const char*, int64_t>> values) {
  OptionValues options;
  for (const auto& [name, value] : values) options.set(name, value);
  return options;
}

inline std::vector<int64_t> first_indices(int64_t count) {
  std::vector<int64_t> indices(static_cast<size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

}  // namespace tapeformer::test
