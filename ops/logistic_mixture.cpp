#include "ops/logistic_mixture.h"

#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/kernels/logistic_mixture.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

int64_t checked_mixtures(const char* op, const Tensor& parameters) {
  check(parameters.rank() == 2 && parameters.size(1) > 0 && parameters.size(1) % 3 == 0, op,
        "parameters must be (rows, 3 * mixtures), not ", parameters.shape());
  const int64_t mixtures = parameters.size(1) / 3;
  check(mixtures <= cpu::kMaxMixtures, op, mixtures, " mixtures; at most ", cpu::kMaxMixtures,
        " are supported");
  return mixtures;
}

// Negative log-likelihoods (rows,); fills `gradient` where defined, row i times scale[i].
Tensor row_nll(const char* op, const Tensor& parameters, const Tensor& targets, int64_t levels,
               const Tensor& scale, const Tensor& gradient) {
  const int64_t rows = parameters.size(0), mixtures = checked_mixtures(op, parameters);
  check(levels >= 2, op, levels, " levels; at least 2 are needed");
  check(targets.shape() == Shape{rows}, op, "targets ", targets.shape(), " for parameters ",
        parameters.shape());
  const Tensor index = checked_index(op, targets, levels, parameters.device());
  const Tensor nll = Tensor::empty({rows}, parameters.dtype(), parameters.device());
  on_device(parameters.device(), op, [&] {
    visit_floating(op, parameters.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::logistic_mixture(rows, mixtures, levels, parameters.data<T>(), index.data<int64_t>(),
                            scale.defined() ? scale.data<T>() : nullptr, nll.data<T>(),
                            gradient.defined() ? gradient.data<T>() : nullptr);
    });
  });
  return nll;
}

// 1 / (counted rows) where the row counts, else 0.
Tensor row_weights(const Tensor& mask, int64_t rows, DType dtype) {
  check(!mask.defined() || (mask.shape() == Shape{rows} && mask.dtype() == DType::uint8),
        "logistic_mixture_loss", "row_mask must be uint8 ", Shape{rows});
  const Tensor counts = mask.defined() ? mask.to(DType::float64) : Tensor::full({rows}, 1, DType::float64);
  double counted = 0;
  for (int64_t i = 0; i < rows; ++i) counted += counts.data<double>()[i] = counts.data<double>()[i] != 0;
  for (int64_t i = 0; i < rows && counted > 0; ++i) counts.data<double>()[i] /= counted;
  return counts.to(dtype);
}

}  // namespace

// The gradient is made in the same pass as the loss, while the parameters of a row are in registers.
Tensor logistic_mixture_loss(const Tensor& parameters, const Tensor& targets,
                             const LogisticMixtureOptions& options) {
  const Tensor rows = contiguous(parameters);
  checked_mixtures("logistic_mixture_loss", rows);
  const Tensor weights = row_weights(options.row_mask, rows.size(0), rows.dtype());
  const bool wanted = recording() && requires_grad(rows);
  const Tensor gradient = wanted ? Tensor::empty_like(rows) : Tensor{};
  const Tensor nll = row_nll("logistic_mixture_loss", rows, targets, options.levels, weights, gradient);
  double total = 0;
  visit_floating("logistic_mixture_loss", rows.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < nll.numel(); ++i)
      if (weights.data<T>()[i] > 0)
        total += static_cast<double>(nll.data<T>()[i]) * static_cast<double>(weights.data<T>()[i]);
  });
  return record("logistic_mixture_loss", Tensor::full({}, total, rows.dtype()), {&rows},
                [gradient](const Tensor& g) { return Gradients{mul(gradient, g.item())}; });
}

Tensor logistic_mixture_nll(const Tensor& parameters, const Tensor& targets, int64_t levels) {
  const NoGrad no_grad;
  return row_nll("logistic_mixture_nll", contiguous(parameters), targets, levels, {}, {});
}

void sample_logistic_mixture(const Tensor& parameters, const RandomStream& stream, int64_t first,
                             const Tensor& out, SamplingScale scale) {
  constexpr const char* kOp = "sample_logistic_mixture";
  const int64_t mixtures = checked_mixtures(kOp, parameters);
  check(parameters.is_contiguous(), kOp, "parameters must be contiguous");
  check(out.shape() == Shape{parameters.size(0)} && out.is_contiguous(), kOp,
        "out must be contiguous (rows,), not ", out.shape());
  on_device(parameters.device(), kOp, [&] {
    visit_floating(kOp, parameters.dtype(), [&](auto tag) {
      using T = decltype(tag);
      cpu::sample_logistic_mixture(parameters.size(0), mixtures, parameters.data<T>(), stream, first,
                                   scale == SamplingScale::elu, out.data<uint8_t>());
    });
  });
}

}  // namespace tapeformer
