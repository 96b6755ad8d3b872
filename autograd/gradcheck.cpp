#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "core/rng.h"

namespace tapeformer {
namespace {

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

// Returns the fourth-order central difference of sum(f * weights) with respect to one element of the inputs.
double compute_central_difference(const Function& f, const std::vector<Tensor>& inputs, double* element,
                                  const std::vector<double>& weights, double step) {
  const NoGrad no_grad;
  const double saved = *element;
  auto value_at = [&](double offset) {
    *element = saved + offset;
    const std::vector<double> result = f(inputs).to_vector();
    double sum = 0;
    for (size_t i = 0; i < weights.size(); ++i) sum += result[i] * weights[i];
    return sum;
  };
  const double near = value_at(step) - value_at(-step);
  const double far = value_at(2 * step) - value_at(-2 * step);
  *element = saved;
  return (8 * near - far) / (12 * step);
}

}  // namespace

GradcheckResult gradcheck(const Function& f, const std::vector<Tensor>& inputs, double step) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) {
    leaves.push_back(detach(input).clone());
    if (is_floating(input.dtype())) require_grad(leaves.back());
  }
  const Tensor result = f(leaves);
  const Tensor cotangent = Tensor::empty(result.shape(), DType::float64);
  const RandomStream stream(17, "gradcheck");
  for (int64_t i = 0; i < cotangent.numel(); ++i)
    cotangent.data<double>()[i] = stream.normal(static_cast<uint64_t>(i));
  backward(result, cotangent);

  GradcheckResult worst;
  const std::vector<double> weights = cotangent.to_vector();
  for (size_t input = 0; input < leaves.size(); ++input) {
    if (!is_floating(leaves[input].dtype())) continue;
    const Tensor analytic = gradient(leaves[input]);
    double largest = 1e-8, error = 0;
    for (int64_t i = 0; i < leaves[input].numel(); ++i) {
      const double numeric =
          compute_central_difference(f, leaves, leaves[input].data<double>() + i, weights, step);
      const double exact = analytic.defined() ? analytic.to_vector()[static_cast<size_t>(i)] : 0;
      largest = std::max({largest, std::abs(numeric), std::abs(exact)});
      error = std::max(error, std::abs(numeric - exact));
      if (!std::isfinite(numeric) || !std::isfinite(exact))
        worst.message =
            concat_text("input ", input, " element ", i, ": analytic ", exact, ", numeric ", numeric);
    }
    if (error / largest > worst.relative_error)
      worst = {error / largest, static_cast<int>(input), worst.message};
  }
  return worst;
}

}  // namespace tapeformer
