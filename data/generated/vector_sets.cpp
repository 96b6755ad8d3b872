// Generated sets of vectors from "Set Transformer" (Lee et al. 2019).
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/base/errors.h"
#include "data/generated/generated_set.h"

namespace tapeformer {
namespace {

constexpr GeneratedSet::Sizes kVectorSetSizes{.train = 1'000'000, .evaluation = 2000};
constexpr int64_t kPlane = 2;  // dimensions of the points of a mixture
constexpr double kMeanRange = 4, kDeviation = 0.3;

struct Component {
  double share;
  std::array<double, kPlane> mean;
};

double log_density(const std::vector<Component>& mixture, const float* point) {
  double density = 0;
  for (const Component& component : mixture) {
    double squares = 0;
    for (size_t i = 0; i < component.mean.size(); ++i)
      squares += std::pow((static_cast<double>(point[i]) - component.mean[i]) / kDeviation, 2);
    density += component.share * std::exp(-squares / 2);
  }
  return std::log(density) - kPlane * std::log(kDeviation * std::sqrt(2 * std::numbers::pi));
}

struct VectorOptions {
  // Smallest and largest number of elements in a set. The number of elements is uniformly distributed.
  int64_t max_length = 128, min_length = 0;
  int64_t components = 4;  // number of Gaussians in a mixture
};

OptionTable<VectorOptions> make_table(bool has_components) {
  OptionTable<VectorOptions> table(OptionUse::data);
  add_max_length(table);
  add_min_length(table);
  if (has_components)
    table.add("components", &VectorOptions::components, "components of a mixture of Gaussians")
        .use_for(OptionUse::model)
        .require_range(1, 1000);
  return table;
}

class VectorSet : public GeneratedSet {
 public:
  static OptionProblems find_problems(const VectorOptions& options) {
    return find_min_length_problems(options);
  }
  // Returns a batch with `elements`, `lengths` and `targets`. `elements` has the shape
  // (batch, max_length, features) and contains zeros after the last element of each set.
  Batch batch(std::span<const int64_t> indices) const override;

 protected:
  VectorSet(const std::string& name, int64_t features, const VectorOptions& options,
            const DatasetRequest& request)
      : GeneratedSet(request, kVectorSetSizes, name + ": ",
                     {.name = name, .length = options.max_length - 1, .feature_count = features}),
        min_length_(std::max<int64_t>(1, choose_min_length(options))) {}

 private:
  // Writes `length` elements of an example to `elements`. Returns the target of the example.
  virtual double write_example(Draws& draws, int64_t length, float* elements) const = 0;

  int64_t min_length_;
};

Batch VectorSet::batch(std::span<const int64_t> indices) const {
  check_indices(indices);
  const auto count = static_cast<int64_t>(indices.size());
  const int64_t longest = info().length + 1;
  Batch batch;
  batch.elements = Tensor::zeros({count, longest, info().feature_count});
  batch.lengths = Tensor::empty({count}, DType::int64);
  batch.targets = Tensor::empty({count});
  for (int64_t i = 0; i < count; ++i) {
    Draws draws = draws_of(indices[static_cast<size_t>(i)]);
    const int64_t length = min_length_ + draws.below(longest - min_length_ + 1);
    batch.lengths.data<int64_t>()[i] = length;
    batch.targets.data<float>()[i] = static_cast<float>(
        write_example(draws, length, batch.elements.data<float>() + i * longest * info().feature_count));
  }
  return batch;
}

// Sets of numbers that are uniformly distributed in (0, 1). The target is the maximum. In section 5.1 of the
// paper, the numbers and the target are 100 times as large.
class MaximumSet final : public VectorSet {
 public:
  MaximumSet(const VectorOptions& options, const DatasetRequest& request)
      : VectorSet("set-maximum", 1, options, request) {}

 private:
  double write_example(Draws& draws, int64_t length, float* elements) const override {
    std::generate_n(elements, length, [&] { return static_cast<float>(draws.uniform()); });
    return *std::max_element(elements, elements + length);
  }
};

// Sets of points in the plane, drawn from a mixture of Gaussians (section 5.3 of "Set Transformer"). The
// weights of the Gaussians have a Dirichlet distribution with parameter 1. The coordinates of the means of
// the Gaussians are uniformly distributed in [-4, 4], and the standard deviation of each Gaussian is 0.3.
// The target is the mean log-likelihood of the points under the mixture.
class MixtureSet final : public VectorSet {
 public:
  MixtureSet(const VectorOptions& options, const DatasetRequest& request)
      : VectorSet("set-mixture", kPlane, options, request), components_(options.components) {}

 private:
  double write_example(Draws& draws, int64_t length, float* elements) const override;

  int64_t components_;
};

double MixtureSet::write_example(Draws& draws, int64_t length, float* elements) const {
  // Exponential variates divided by their sum have a Dirichlet distribution with parameter 1.
  std::vector<Component> mixture(static_cast<size_t>(components_));
  double sum = 0;
  for (Component& component : mixture) {
    sum += component.share = -std::log(draws.uniform());
    for (double& x : component.mean) x = kMeanRange * (2 * draws.uniform() - 1);
  }
  for (Component& component : mixture) component.share /= sum;
  double log_likelihood = 0;
  for (int64_t i = 0; i < length; ++i) {
    size_t chosen = 0;
    for (double rest = draws.uniform() - mixture[0].share; rest > 0 && chosen + 1 < mixture.size();)
      rest -= mixture[++chosen].share;
    float* const point = elements + i * kPlane;
    for (size_t j = 0; j < mixture[chosen].mean.size(); ++j)
      point[j] = static_cast<float>(mixture[chosen].mean[j] + kDeviation * draws.normal());
    log_likelihood += log_density(mixture, point);
  }
  return log_likelihood / static_cast<double>(length);
}

}  // namespace

std::vector<DatasetKind> make_vector_kinds() {
  const auto make_kind = [](const char* name) {
    return DatasetKind{.name = name,
                       .type = DatasetType::vectors,
                       .model_types = {"set"},
                       .has_validation_split = [](const OptionValues&) { return true; }};
  };
  return {make_generated_kind<MaximumSet>(make_kind("set-maximum"), make_table(false)),
          make_generated_kind<MixtureSet>(make_kind("set-mixture"), make_table(true))};
}

}  // namespace tapeformer
