#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random/rng.h"

namespace tapeformer {
namespace {

Tensor make_cotangent(const Shape& shape) {
  const Tensor cotangent = Tensor::empty(shape, DType::float64);
  const RandomStream stream(17, "gradcheck");
  for (int64_t i = 0; i < cotangent.numel(); ++i)
    cotangent.data<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  return cotangent;
}

// Returns the fourth-order central difference of sum(f() * weights) with respect to *element. Changes
// *element temporarily.
double compute_central_difference(const std::function<Tensor()>& f, double* element,
                                  const std::vector<double>& weights, double step) {
  const NoGradScope no_grad;
  const double saved = *element;
  auto value_at = [&](double offset) {
    *element = saved + offset;
    const std::vector<double> result = f().to_vector();
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += result[i] * weights[i];
    return sum;
  };
  const double near = value_at(step) - value_at(-step);
  const double far = value_at(2 * step) - value_at(-2 * step);
  *element = saved;
  return (8 * near - far) / (12 * step);
}

// Computes the central difference with GradcheckOptions::step. If the difference does not match the gradient
// `exact`, also computes the difference with GradcheckOptions::kink_step. Returns the computed difference
// that is closest to `exact`.
double find_closest_difference(const std::function<Tensor()>& f, double* element,
                               const std::vector<double>& weights, double exact,
                               const GradcheckOptions& options) {
  const double difference = compute_central_difference(f, element, weights, options.step);
  const double error = std::abs(difference - exact);
  constexpr double kTolerance = 1e-7;
  if (options.kink_step == 0 || error <= kTolerance * std::max(std::abs(exact), options.min_denominator))
    return difference;
  const double retried = compute_central_difference(f, element, weights, options.kink_step);
  // If `error` is NaN, the comparison is false and the result is `retried`.
  return std::abs(retried - exact) >= error ? difference : retried;
}

// Returns the distance n between compared elements: only elements 0, n, 2 n, … of the leaf are compared. If
// `max_elements` is 0, n is 1. Otherwise n is about numel / max_elements. n and the size of the last
// dimension are coprime, so that the compared elements are spread over all columns.
int64_t choose_stride(const Tensor& leaf, int64_t max_elements) {
  if (max_elements == 0 || leaf.rank() == 0) return 1;
  int64_t stride = std::max<int64_t>(leaf.numel() / max_elements, 1);
  while (std::gcd(stride, leaf.size(-1)) > 1) ++stride;
  return stride;
}

}  // namespace

GradcheckResult gradcheck_leaves(const std::function<Tensor()>& f, const std::vector<Tensor>& leaves,
                                 const GradcheckOptions& options) {
  for (const Tensor& leaf : leaves) set_gradient(leaf, {});
  const Tensor result = f();
  const Tensor cotangent = make_cotangent(result.shape());
  backward(result, cotangent);

  GradcheckResult worst;
  const std::vector<double> weights = cotangent.to_vector();
  for (size_t input = 0; input < leaves.size(); ++input) {
    const Tensor& leaf = leaves[input];
    const Tensor analytic = gradient(leaf);
    const std::vector<double> gradients =
        analytic.defined() ? analytic.to_vector() : std::vector<double>(static_cast<size_t>(leaf.numel()));
    const int64_t stride = choose_stride(leaf, options.max_elements);
    double largest = options.min_denominator, error = 0;
    for (int64_t i = 0; i < leaf.numel(); i += stride) {
      const double exact = gradients[static_cast<size_t>(i)];
      const double numeric = find_closest_difference(f, leaf.data<double>() + i, weights, exact, options);
      largest = std::max({largest, std::abs(numeric), std::abs(exact)});
      error = std::max(error, std::abs(numeric - exact));
      if (!std::isfinite(numeric) || !std::isfinite(exact))
        return {INFINITY, static_cast<int>(input),
                concat_text("element ", i, ": analytic ", exact, ", numeric ", numeric)};
    }
    if (error / largest > worst.max_relative_error) worst = {error / largest, static_cast<int>(input), ""};
  }
  return worst;
}

GradcheckResult gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f,
                          const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  std::vector<Tensor> copies, leaves;
  std::vector<int> leaf_inputs;  // leaf_inputs[i] is the index of the input that leaves[i] copies
  for (const Tensor& input : inputs) {
    copies.push_back(detach(input).clone());
    if (!is_floating(input.dtype())) continue;
    leaves.push_back(set_requires_grad(copies.back()));
    leaf_inputs.push_back(static_cast<int>(copies.size()) - 1);
  }
  GradcheckResult worst = gradcheck_leaves([&] { return f(copies); }, leaves, options);
  if (worst.worst_input >= 0) worst.worst_input = leaf_inputs[static_cast<size_t>(worst.worst_input)];
  return worst;
}

}  // namespace tapeformer
