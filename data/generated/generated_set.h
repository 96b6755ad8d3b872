// Data sets whose examples are generated when they are read. An example depends only on the options of the
// set, the split, the seed and the index of the example. The splits use separate random streams. All classes
// are thread-safe.
//
// A set is a class with a constructor from a struct of options and a DatasetRequest, and a function
// find_problems() of these options. make_generated_kind() makes its kind.
#pragma once

#include <memory>
#include <string>

#include "core/random/rng.h"
#include "data/dataset_kind.h"
#include "data/shared_options.h"

namespace tapeformer {

// The numbers of a random stream in order.
class Draws {
 public:
  explicit Draws(const RandomStream& stream) : stream_(stream) {}
  double uniform() { return stream_.uniform(number_++); }
  double normal() { return stream_.normal(number_++); }
  int64_t below(int64_t n) {
    return static_cast<int64_t>(stream_.uniform_below(number_++, static_cast<uint64_t>(n)));
  }

 private:
  RandomStream stream_;
  uint64_t number_ = 0;
};

class GeneratedSet : public Dataset {
 public:
  // Numbers of examples of the split "train" and of the other splits if DatasetRequest::limit is 0.
  struct Sizes {
    int64_t train, evaluation;
  };

  const DatasetInfo& info() const final { return info_; }
  int64_t size() const final { return size_; }

 protected:
  // Throws ConfigError if the split of the request is unknown.
  GeneratedSet(const DatasetRequest& request, Sizes sizes, const std::string& stream_name, DatasetInfo info);
  Draws draws_of(int64_t index) const { return Draws(stream_.at_step(static_cast<uint64_t>(index))); }

 private:
  DatasetInfo info_;
  int64_t size_;
  RandomStream stream_;
};

// Throws ConfigError with the first problem.
void require_no_problems(const std::string& name, const OptionProblems& problems);

// Adds the options and the functions of the class `Set` to a kind.
template <class Set, class Options>
DatasetKind make_generated_kind(DatasetKind kind, const OptionTable<Options>& table) {
  kind.options = table.specs();
  kind.find_problems = [table](const OptionValues& values) { return Set::find_problems(table.read(values)); };
  const auto make = [table, name = kind.name](const OptionValues& values, const DatasetRequest& request) {
    const Options options = table.read(values);
    require_no_problems(name, Set::find_problems(options));
    return std::make_shared<const Set>(options, request);
  };
  kind.make = make;
  kind.get_info = [make](const OptionValues& values, const DatasetRequest& request) {
    return make(values, request)->info();
  };
  return kind;
}

}  // namespace tapeformer
