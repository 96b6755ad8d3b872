#include "data/set_tasks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/errors.h"
#include "data/sets/catalogue.h"

namespace tapeformer {
namespace {

constexpr double kMeanRange = 4, kDeviation = 0.3;

struct Component {
  double share;
  std::array<double, SetMixtureTask::kFeatures> mean;
};

double log_density(const std::vector<Component>& mixture, const float* point) {
  double density = 0;
  for (const Component& component : mixture) {
    double squares = 0;
    for (size_t i = 0; i < component.mean.size(); ++i)
      squares += std::pow((static_cast<double>(point[i]) - component.mean[i]) / kDeviation, 2);
    density += component.share * std::exp(-squares / 2);
  }
  return std::log(density) -
         SetMixtureTask::kFeatures * std::log(kDeviation * std::sqrt(2 * std::numbers::pi));
}

}  // namespace

SetTask::SetTask(const std::string& name, int64_t features, const SetTaskOptions& options)
    : info_{.name = name,
            .split = options.split,
            .length = options.max_length - 1,
            .feature_count = features},
      min_length_(options.min_length > 0 ? options.min_length : std::max<int64_t>(1, options.max_length / 4)),
      size_(options.example_count),
      stream_(options.seed, name + ": " + options.split) {
  const std::vector<std::string> splits = {"train", "valid", "test"};
  if (std::find(splits.begin(), splits.end(), options.split) == splits.end())
    throw ConfigError(describe_unknown_name(options.split, "a split", splits));
  const auto require = [&](bool condition, const char* option, int64_t value, const std::string& expected) {
    if (!condition) throw ConfigError(concat_text(name, ": ", option, " ", value, ", expected ", expected));
  };
  require(options.max_length >= 1, "max_length", options.max_length, "at least 1");
  require(options.min_length >= 0 && options.min_length <= options.max_length, "min_length",
          options.min_length, concat_text("0 to max_length, ", options.max_length));
  require(options.example_count >= 0, "count", options.example_count, "0 (for all) or more");
  if (size_ == 0) size_ = options.split == "train" ? kTrainExampleCount : kEvalExampleCount;
}

Batch SetTask::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t longest = info_.length + 1;
  Batch batch;
  batch.elements = Tensor::zeros({count, longest, info_.feature_count});
  batch.lengths = Tensor::empty({count}, DType::int64);
  batch.targets = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) {
    RandomNumberGenerator generator(stream_.at_step(static_cast<uint64_t>(indices[static_cast<size_t>(i)])));
    const int64_t length = min_length_ + generator.uniform_below(longest - min_length_ + 1);
    batch.lengths.data<int64_t>()[i] = length;
    batch.targets.data<float>()[i] = static_cast<float>(
        write_example(generator, length, batch.elements.data<float>() + i * longest * info_.feature_count));
  }
  return batch;
}

double SetMaximumTask::write_example(RandomNumberGenerator& generator, int64_t length,
                                     float* elements) const {
  std::generate_n(elements, length, [&] { return static_cast<float>(generator.uniform()); });
  return *std::max_element(elements, elements + length);
}

SetMixtureTask::SetMixtureTask(const SetTaskOptions& options)
    : SetTask("set-mixture", kFeatures, options), components_(options.components) {
  if (components_ < 1)
    throw ConfigError(concat_text("set-mixture: components ", components_, ", expected at least 1"));
}

double SetMixtureTask::write_example(RandomNumberGenerator& generator, int64_t length,
                                     float* elements) const {
  // Exponential variates divided by their sum have a Dirichlet distribution with parameter 1.
  std::vector<Component> mixture(static_cast<size_t>(components_));
  double sum = 0;
  for (Component& component : mixture) {
    sum += component.share = -std::log(generator.uniform());
    for (double& x : component.mean) x = kMeanRange * (2 * generator.uniform() - 1);
  }
  for (Component& component : mixture) component.share /= sum;
  double log_likelihood = 0;
  for (int64_t i = 0; i < length; ++i) {
    size_t chosen = 0;
    for (double rest = generator.uniform() - mixture[0].share; rest > 0 && chosen + 1 < mixture.size();)
      rest -= mixture[++chosen].share;
    float* const point = elements + i * kFeatures;
    for (size_t j = 0; j < mixture[chosen].mean.size(); ++j)
      point[j] = static_cast<float>(mixture[chosen].mean[j] + kDeviation * generator.normal());
    log_likelihood += log_density(mixture, point);
  }
  return log_likelihood / static_cast<double>(length);
}

}  // namespace tapeformer
