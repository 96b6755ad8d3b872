#include "ops/kernels/gated_activation.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/activation_functions.h"

namespace tapeformer::cpu {
namespace {

constexpr int64_t kGrain = 1 << 13;  // minimum number of results per thread
constexpr int64_t kPiece = 1024;     // elements of a row that are processed together

// Calls f(index of the row, first column, number of columns, dropout multipliers) for pieces of rows, in
// parallel.
template <class C, class F>
void for_pieces(const GatedActivationShape& s, const DropoutMask& dropout, const F& f) {
  parallel_for(s.rows, kGrain / std::max<int64_t>(s.dim, 1) + 1, [&](int64_t begin, int64_t end) {
    C multipliers[kPiece];
    std::fill_n(multipliers, kPiece, C{1});
    for (int64_t row = begin; row < end; ++row)
      for (int64_t first = 0; first < s.dim; first += kPiece) {
        const int64_t count = std::min(kPiece, s.dim - first);
        if (dropout.is_active())
          compute_dropout_multipliers(dropout, row * s.dim + first, count, multipliers);
        f(row, first, count, multipliers);
      }
  });
}

}  // namespace

template <class T>
void gated_activation_forward(Backend, const GatedActivationShape& s, const T* x, const DropoutMask& dropout,
                              T* y) {
  using C = Compute<T>;
  visit_activation(s.activation, [&](auto constant) {
    using Function = ActivationFunction<constant()>;
    for_pieces<C>(s, dropout, [&](int64_t row, int64_t first, int64_t count, const C* multipliers) {
      const T *const a = x + 2 * row * s.dim + first, *const b = a + s.dim;
      T* const result = y + row * s.dim + first;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i)
        set_element(result[i], Function::template value<VectorMath>(static_cast<C>(a[i])) *
                                   static_cast<C>(b[i]) * multipliers[i]);
    });
  });
}

template <class T>
void gated_activation_backward(Backend, const GatedActivationShape& s, const T* g, const T* x,
                               const DropoutMask& dropout, T* gx) {
  using C = Compute<T>;
  visit_activation(s.activation, [&](auto constant) {
    using Function = ActivationFunction<constant()>;
    for_pieces<C>(s, dropout, [&](int64_t row, int64_t first, int64_t count, const C* multipliers) {
      const T *const a = x + 2 * row * s.dim + first, *const b = a + s.dim;
      const T* const gradient = g + row * s.dim + first;
      T *const ga = gx + 2 * row * s.dim + first, *const gb = ga + s.dim;
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const C input = static_cast<C>(a[i]), output = static_cast<C>(gradient[i]) * multipliers[i];
        const C value = Function::template value<VectorMath>(input);
        set_element(ga[i],
                    output * static_cast<C>(b[i]) * Function::template derivative<VectorMath>(input, value));
        set_element(gb[i], output * value);
      }
    });
  });
}

template <class T>
struct GatedActivationKernels {
  inline static const FunctionInstances all{&gated_activation_forward<T>, &gated_activation_backward<T>};
};
template struct GatedActivationKernels<float>;
template struct GatedActivationKernels<double>;
template struct GatedActivationKernels<BFloat16>;

}  // namespace tapeformer::cpu
