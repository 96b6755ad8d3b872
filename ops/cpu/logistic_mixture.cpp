#include "ops/kernels/logistic_mixture.h"

#include <algorithm>
#include <cmath>

#include "core/cpu/vector_math.h"
#include "core/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr double kMinLogScale = -7;
constexpr double kTinyMass = 1e-5;  // below it the density stands for the difference of two sigmoids
constexpr int64_t kGrainRows = 128;

enum class Edge { none, low, high };

// log p of a component and its derivatives by mean and log-scale. plus and minus are the upper and lower end
// of the level in units of the scale; the mass between them is written as the product sigmoid(plus)
// sigmoid(-minus) (1 - exp(minus - plus)), which does not cancel.
template <class T>
struct Component {
  T log_mass, by_mean, by_log_scale;
};

template <Edge edge, class T>
[[gnu::always_inline]] inline Component<T> component(T y, T mean, T raw_log_scale, T half, T log_width) {
  const bool clamped = raw_log_scale < T(kMinLogScale);
  const T log_scale = clamped ? T(kMinLogScale) : raw_log_scale;
  const T inverse = vmath::exp(-log_scale);
  const T plus = inverse * (y - mean + half), minus = inverse * (y - mean - half);
  Component<T> out;
  if constexpr (edge == Edge::low) {
    const T slope = vmath::sigmoid(-plus);
    out = {-vmath::softplus(-plus), -inverse * slope, -plus * slope};
  } else if constexpr (edge == Edge::high) {
    const T slope = vmath::sigmoid(minus);
    out = {-vmath::softplus(minus), inverse * slope, minus * slope};
  } else {
    const T share = -vmath::expm1(T(-2) * half * inverse);
    const T above = vmath::sigmoid(-minus), below = vmath::sigmoid(plus);
    const T mass = below * above * share;
    const T by_plus = vmath::sigmoid(-plus) / (above * share),
            by_minus = -vmath::sigmoid(minus) / (below * share);
    const T middle = inverse * (y - mean);
    const T slope = 1 - 2 * vmath::sigmoid(middle);
    const T density = middle - log_scale - 2 * vmath::softplus(middle) + log_width;
    const bool exact = mass > T(kTinyMass);
    out.log_mass = exact ? vmath::log(mass) : density;
    out.by_mean = -inverse * (exact ? by_plus + by_minus : slope);
    out.by_log_scale = exact ? -(plus * by_plus + minus * by_minus) : -middle * slope - 1;
  }
  out.by_log_scale = clamped ? T{0} : out.by_log_scale;
  return out;
}

template <Edge edge, class T>
void components(const T* p, int64_t mixtures, T y, T half, T log_width, T* log_mass, T* by_mean,
                T* by_log_scale) {
#pragma omp simd
  for (int64_t k = 0; k < mixtures; ++k) {
    const Component<T> c = component<edge>(y, p[mixtures + k], p[2 * mixtures + k], half, log_width);
    log_mass[k] = c.log_mass;
    by_mean[k] = c.by_mean;
    by_log_scale[k] = c.by_log_scale;
  }
}

// log(sum(exp(x))), leaving the terms divided by their sum in `shares`.
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
  T log_mass[kMaxMixtures], by_mean[kMaxMixtures], by_log_scale[kMaxMixtures];
  if (y < T(-0.999))
    components<Edge::low>(p, mixtures, y, half, log_width, log_mass, by_mean, by_log_scale);
  else if (y > T(0.999))
    components<Edge::high>(p, mixtures, y, half, log_width, log_mass, by_mean, by_log_scale);
  else
    components<Edge::none>(p, mixtures, y, half, log_width, log_mass, by_mean, by_log_scale);

  T prior[kMaxMixtures], posterior[kMaxMixtures], joint[kMaxMixtures]{};
  const T normalizer = logsumexp(p, mixtures, prior);
  for (int64_t k = 0; k < mixtures; ++k) joint[k] = p[k] - normalizer + log_mass[k];
  const T log_likelihood = logsumexp(joint, mixtures, posterior);
  if (gradient)
    for (int64_t k = 0; k < mixtures; ++k) {
      gradient[k] = scale * (prior[k] - posterior[k]);
      gradient[mixtures + k] = -scale * posterior[k] * by_mean[k];
      gradient[2 * mixtures + k] = -scale * posterior[k] * by_log_scale[k];
    }
  return -log_likelihood;
}

template <class T>
uint8_t sample_row(const T* p, int64_t mixtures, double u_component, double u_value, bool elu_scale) {
  double weights[kMaxMixtures], total = 0;
  const T largest = *std::max_element(p, p + mixtures);
  for (int64_t k = 0; k < mixtures; ++k) total += weights[k] = std::exp(static_cast<double>(p[k] - largest));
  int64_t chosen = 0;
  double rest = u_component * total - weights[0];
  while (rest > 0 && chosen + 1 < mixtures) rest -= weights[++chosen];
  const double mean = static_cast<double>(p[mixtures + chosen]),
               log_scale = static_cast<double>(p[2 * mixtures + chosen]);
  const double elu = log_scale > 0 ? log_scale : std::expm1(log_scale);
  const double scale = elu_scale ? elu + 1.0001 : std::exp(std::max(log_scale, kMinLogScale));
  const double value = mean + scale * (std::log(u_value) - std::log1p(-u_value));
  return static_cast<uint8_t>(std::clamp(std::nearbyint((value + 1) / 2 * 255), 0.0, 255.0));
}

}  // namespace

template <class T>
void logistic_mixture(int64_t rows, int64_t mixtures, int64_t levels, const T* parameters,
                      const int64_t* targets, const T* scale, T* nll, T* gradient) {
  parallel_for(rows, kGrainRows, [=](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row)
      nll[row] = row_nll(parameters + row * 3 * mixtures, mixtures, levels, targets[row],
                         scale ? scale[row] : T{1}, gradient ? gradient + row * 3 * mixtures : nullptr);
  });
}

template <class T>
void sample_logistic_mixture(int64_t rows, int64_t mixtures, const T* parameters, const RandomStream& stream,
                             int64_t first, bool elu_scale, uint8_t* out) {
  for (int64_t row = 0; row < rows; ++row) {
    const auto element = static_cast<uint64_t>(2 * (first + row));
    out[row] = sample_row(parameters + row * 3 * mixtures, mixtures, stream.uniform(element),
                          stream.uniform(element + 1), elu_scale);
  }
}

template void logistic_mixture(int64_t, int64_t, int64_t, const float*, const int64_t*, const float*, float*,
                               float*);
template void logistic_mixture(int64_t, int64_t, int64_t, const double*, const int64_t*, const double*,
                               double*, double*);
template void sample_logistic_mixture(int64_t, int64_t, const float*, const RandomStream&, int64_t, bool,
                                      uint8_t*);
template void sample_logistic_mixture(int64_t, int64_t, const double*, const RandomStream&, int64_t, bool,
                                      uint8_t*);

}  // namespace tapeformer::cpu
