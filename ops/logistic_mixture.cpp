#include "ops/logistic_mixture.h"

#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/index.h"
#include "ops/kernels/logistic_mixture.h"
#include "ops/row_loss.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

int64_t check_mixture_count(const char* op, const Tensor& parameters) {
  check(parameters.rank() == 2 && parameters.size(1) > 0 && parameters.size(1) % 3 == 0, op,
        "parameters must be (rows, 3 * mixtures), not ", parameters.shape());
  const int64_t mixtures = parameters.size(1) / 3;
  check(mixtures <= kMaxMixtures, op, mixtures, " mixtures; at most ", kMaxMixtures, " are supported");
  return mixtures;
}

// Returns the negative log-likelihood of each row of `targets`, with shape (rows,). If `gradient` is defined,
// writes the gradient of `parameters` to `gradient`, with row i multiplied by scale[i].
Tensor row_nll(const char* op, const Tensor& parameters, const Tensor& targets, int64_t levels,
               const Tensor& scale, const Tensor& gradient) {
  const int64_t rows = parameters.size(0), mixtures = check_mixture_count(op, parameters);
  check(levels >= 2, op, levels, " levels; at least 2 are needed");
  check(targets.shape() == Shape{rows}, op, "targets ", targets.shape(), " do not match parameters ",
        parameters.shape());
  const Tensor index = prepare_index(op, targets, levels, parameters.device());
  const Tensor nll = Tensor::empty({rows}, parameters.dtype(), parameters.device());
  dispatch_float_or_double(op, parameters, [&]<class T>(auto backend) {
    compute_logistic_mixture_nll(backend, rows, mixtures, levels, parameters.data<T>(), index.data<int64_t>(),
                                 get_data_or_null<T>(scale), nll.data<T>(), get_data_or_null<T>(gradient));
  });
  return nll;
}

}  // namespace

// Computes loss and gradient in one pass of the kernel.
Tensor logistic_mixture_loss(const Tensor& parameters, const Tensor& targets,
                             const LogisticMixtureOptions& options) {
  check_defined("logistic_mixture_loss", "parameters", parameters, "targets", targets);
  const Tensor rows = contiguous(parameters);
  check_mixture_count("logistic_mixture_loss", rows);
  constexpr const char* kOp = "logistic_mixture_loss";
  const Tensor weights =
      compute_row_weights(kOp, options.row_mask, rows.size(0), rows.dtype(), rows.device());
  const bool wanted = is_recording() && requires_grad(rows);
  const Tensor gradient = wanted ? Tensor::empty_like(rows) : Tensor{};
  const Tensor nll = row_nll(kOp, rows, targets, options.levels, weights, gradient);
  return record(kOp, compute_weighted_sum(kOp, nll, weights), {&rows}, [gradient](const Tensor& g) {
    return Gradients{multiply_by_scalar("logistic_mixture_loss", gradient, g)};
  });
}

Tensor logistic_mixture_nll(const Tensor& parameters, const Tensor& targets, int64_t levels) {
  check_defined("logistic_mixture_nll", "parameters", parameters, "targets", targets);
  const NoGradScope no_grad;
  return row_nll("logistic_mixture_nll", contiguous(parameters), targets, levels, {}, {});
}

void sample_logistic_mixture(const Tensor& parameters, const RandomStream& stream, int64_t first,
                             const Tensor& out, SamplingScale scale) {
  check_defined("sample_logistic_mixture", "parameters", parameters, "out", out);
  constexpr const char* kOp = "sample_logistic_mixture";
  const int64_t mixtures = check_mixture_count(kOp, parameters);
  check(parameters.is_contiguous(), kOp, "parameters must be contiguous");
  check(out.shape() == Shape{parameters.size(0)} && out.is_contiguous(), kOp,
        "out must be contiguous (rows,), not ", out.shape());
  dispatch_float_or_double(kOp, parameters, [&]<class T>(auto backend) {
    sample_logistic_mixture(backend, parameters.size(0), mixtures, parameters.data<T>(), stream, first,
                            scale == SamplingScale::elu, out.data<uint8_t>());
  });
}

}  // namespace tapeformer
