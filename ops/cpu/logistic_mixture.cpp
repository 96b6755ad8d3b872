#include "ops/kernels/logistic_mixture.h"

#include <algorithm>
#include <cmath>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/logistic_mixture_functions.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrainRows = 128;  // minimum number of rows per thread

template <LogisticEdge edge, class T>
void compute_components(const T* p, int64_t mixtures, T y, T half, T log_width, T* log_mass,
                        T* mean_derivative, T* log_scale_derivative) {
#pragma omp simd
  for (int64_t k = 0; k < mixtures; ++k) {
    const LogisticComponent<T> c = compute_logistic_component<VectorMath, edge>(
        y, p[mixtures + k], p[2 * mixtures + k], half, log_width);
    log_mass[k] = c.log_mass;
    mean_derivative[k] = c.mean_derivative;
    log_scale_derivative[k] = c.log_scale_derivative;
  }
}

// Returns log(sum(exp(x))), and writes softmax(x) to `shares`.
template <class T>
T logsumexp(const T* x, int64_t n, T* shares) {
  const T largest = *std::max_element(x, x + n);
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t k = 0; k < n; ++k) {
    shares[k] = vmath::exp(x[k] - largest);
    total += shares[k];
  }
  const T inverse = 1 / total;
  for (int64_t k = 0; k < n; ++k) shares[k] *= inverse;
  return largest + std::log(total);
}

template <class T>
T row_nll(const T* p, int64_t mixtures, int64_t levels, int64_t target, T scale, T* gradient) {
  const T half = T(1) / static_cast<T>(levels - 1);
  const T y = static_cast<T>(target) * 2 * half - 1;
  const T log_width = std::log(2 * half);
  T log_mass[kMaxMixtures], mean_derivative[kMaxMixtures], log_scale_derivative[kMaxMixtures];
  if (y < T(-0.999))
    compute_components<LogisticEdge::low>(p, mixtures, y, half, log_width, log_mass, mean_derivative,
                                          log_scale_derivative);
  else if (y > T(0.999))
    compute_components<LogisticEdge::high>(p, mixtures, y, half, log_width, log_mass, mean_derivative,
                                           log_scale_derivative);
  else
    compute_components<LogisticEdge::none>(p, mixtures, y, half, log_width, log_mass, mean_derivative,
                                           log_scale_derivative);

  T prior[kMaxMixtures], posterior[kMaxMixtures], joint[kMaxMixtures]{};
  const T normalizer = logsumexp(p, mixtures, prior);
  for (int64_t k = 0; k < mixtures; ++k) joint[k] = p[k] - normalizer + log_mass[k];
  const T log_likelihood = logsumexp(joint, mixtures, posterior);
  if (gradient)
    for (int64_t k = 0; k < mixtures; ++k) {
      gradient[k] = scale * (prior[k] - posterior[k]);
      gradient[mixtures + k] = -scale * posterior[k] * mean_derivative[k];
      gradient[2 * mixtures + k] = -scale * posterior[k] * log_scale_derivative[k];
    }
  return -log_likelihood;
}

template <class T>
uint8_t sample_row(const T* p, int64_t mixtures, double u_component, double u_value, bool use_elu_scale) {
  double weights[kMaxMixtures]{}, total = 0;
  const T largest = *std::max_element(p, p + mixtures);
  for (int64_t k = 0; k < mixtures; ++k) total += weights[k] = std::exp(static_cast<double>(p[k] - largest));
  int64_t chosen = 0;
  double rest = u_component * total - weights[0];
  while (rest > 0 && chosen + 1 < mixtures) rest -= weights[++chosen];
  const double mean = static_cast<double>(p[mixtures + chosen]),
               log_scale = static_cast<double>(p[2 * mixtures + chosen]);
  const double elu = log_scale > 0 ? log_scale : std::expm1(log_scale);
  const double scale = use_elu_scale ? elu + 1.0001 : std::exp(std::max(log_scale, kMinLogisticLogScale));
  const double value = mean + scale * (std::log(u_value) - std::log1p(-u_value));
  const double level = std::nearbyint((value + 1) / 2 * 255);
  return static_cast<uint8_t>(level > 0 ? std::min(level, 255.0) : 0);  // NaN gives level 0
}

}  // namespace

template <class T>
void compute_logistic_mixture_nll(Backend, int64_t rows, int64_t mixtures, int64_t levels,
                                  const T* parameters, const int64_t* targets, const T* scale, T* nll,
                                  T* gradient) {
  parallel_for(rows, kGrainRows, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      nll[row] = row_nll(parameters + row * 3 * mixtures, mixtures, levels, targets[row],
                         scale ? scale[row] : T{1}, gradient ? gradient + row * 3 * mixtures : nullptr);
  });
}

template <class T>
void sample_logistic_mixture(Backend, int64_t rows, int64_t mixtures, const T* parameters,
                             const RandomStream& stream, int64_t first, bool use_elu_scale, uint8_t* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const auto element = static_cast<uint64_t>(2 * (first + row));
    out[row] = sample_row(parameters + row * 3 * mixtures, mixtures, stream.uniform(element),
                          stream.uniform(element + 1), use_elu_scale);
  }
}

template <class T>
struct LogisticMixtureKernels {
  inline static const FunctionInstances all{&compute_logistic_mixture_nll<T>, &sample_logistic_mixture<T>};
};
template struct LogisticMixtureKernels<float>;
template struct LogisticMixtureKernels<double>;

}  // namespace tapeformer::cpu
