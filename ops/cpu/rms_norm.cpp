#include "ops/kernels/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;  // minimum number of elements per thread
// The gradient of the weight is a sum of at most this number of partial sums. The number depends only on the
// size, so results do not depend on the number of threads.
constexpr int64_t kMaxPartialGradients = 64;

template <class T>
Compute<T> compute_inverse_norm(const RmsNormShape& s, const T* x) {
  using C = Compute<T>;
  return 1 / std::sqrt(static_cast<C>(s.factor) * dot(x, x, s.dim) + static_cast<C>(s.eps));
}

template <class T, class O>
void normalize_row(const RmsNormShape& s, const T* x, const Compute<T>* weight, const T* gate, O* y) {
  const Compute<T> multiplier = compute_inverse_norm(s, x) * static_cast<Compute<T>>(s.scale);
  visit_vectors<T>(
      0, s.dim, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        Vector<Compute<T>> v = load_first(x + i, count) * multiplier;
        if (weight) v *= load_first(weight + i, count);
        if (gate) v *= compute_gate<VectorMath>(s.activation, load_first(gate + i, count));
        store_first(y + i, v, count);
      });
}

// Computes the gradients of a row of x and of the gate, and adds the gradient of the weight to gweight.
// gweight and `scratch`, the gradient of the normalized row, have whole vectors.
template <class T>
void backpropagate_row(const RmsNormShape& s, const T* g, const T* x, const Compute<T>* weight, const T* gate,
                       T* gx, Compute<T>* gweight, T* ggate, Compute<T>* scratch) {
  using C = Compute<T>;
  const C inverse = compute_inverse_norm(s, x), scale = static_cast<C>(s.scale);
  Vector<C> dots{};
  visit_vectors<T>(
      0, s.dim, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        const Vector<C> normalized = load_first(x + i, count) * inverse;
        Vector<C> v = load_first(g + i, count) * scale;
        const Vector<C> w = weight ? load_first(weight + i, count) : Vector<C>{} + 1;
        if (gate) {
          const auto [value, derivative] =
              compute_gate_and_derivative<VectorMath>(s.activation, load_first(gate + i, count));
          if (ggate) store_first(ggate + i, v * w * normalized * derivative, count);
          v *= value;
        }
        if (gweight) store(gweight + i, load(gweight + i) + v * normalized);
        v *= w;
        store(scratch + i, v);
        dots += v * normalized;
      });
  if (!gx) return;
  const C mean = static_cast<C>(s.factor) * sum(dots) * inverse;
  visit_vectors<T>(
      0, s.dim, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
        store_first(gx + i, inverse * (load(scratch + i) - mean * load_first(x + i, count)), count);
      });
}

}  // namespace

template <class T, class O>
void rms_norm_forward(Backend, const RmsNormShape& s, NormRows<const T> x, const Compute<T>* weight,
                      NormRows<const T> gate, NormRows<O> y) {
  parallel_for(s.rows, std::max<int64_t>(kGrain / s.dim, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      normalize_row(s, x.row(i), weight, gate.data ? gate.row(i) : nullptr, y.row(i));
  });
}

template <class T>
void rms_norm_backward(Backend, const RmsNormShape& s, NormRows<const T> g, NormRows<const T> x,
                       const Compute<T>* weight, NormRows<const T> gate, T* gx, Compute<T>* gweight,
                       T* ggate) {
  using C = Compute<T>;
  const int64_t width = round_up_to_vector<T>(s.dim);
  const int64_t parts = std::clamp<int64_t>(s.rows * s.dim / kGrain, 1, kMaxPartialGradients);
  const Scratch<C> partial(gweight ? parts * width : 0);
  if (gweight) std::fill_n(partial.data(), parts * width, C{0});
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    const Scratch<C> scratch(width);
    for (int64_t part = begin; part < end; ++part)
      for (int64_t i = s.rows * part / parts; i < s.rows * (part + 1) / parts; ++i)
        backpropagate_row(s, g.row(i), x.row(i), weight, gate.data ? gate.row(i) : nullptr,
                          gx ? gx + i * s.dim : nullptr, gweight ? partial.data() + part * width : nullptr,
                          ggate ? ggate + i * s.dim : nullptr, scratch.data());
  });
  if (!gweight) return;
  std::fill_n(gweight, s.dim, C{0});
  for (int64_t part = 0; part < parts; ++part)
    for (int64_t i = 0; i < s.dim; ++i) gweight[i] += partial.data()[part * width + i];
}

template <class T>
struct RmsNormKernels {
  inline static const FunctionInstances all{&rms_norm_forward<T, T>, &rms_norm_backward<T>};
};
template struct RmsNormKernels<float>;
template struct RmsNormKernels<double>;
template struct RmsNormKernels<BFloat16>;
template <class T>
struct RoundingRmsNormKernels {
  inline static const FunctionInstances all{&rms_norm_forward<T, BFloat16>};
};
template struct RoundingRmsNormKernels<float>;

}  // namespace tapeformer::cpu
