#include <algorithm>
#include <array>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/gated_linear_attention.h"

namespace tapeformer::cpu {
namespace {

// Number of rows of the state that are processed at a time.
constexpr int64_t kGatedStepRows = 64;

// The rows of one head. `erase` and g can be null.
template <class T>
struct GatedStepRows {
  const T *q, *k, *v, *erase, *g;
  T beta;
};

// Calls f(row, exp(g) of the row) for each row of the state.
template <class T, class F>
[[gnu::always_inline]] inline void for_decayed_rows(const GatedLinearAttentionShape& s, const T* g, F f) {
  std::array<T, kGatedStepRows> decay;
  decay.fill(g && s.decay_dim == 1 ? vmath::exp(g[0]) : T{1});
  for (int64_t begin = 0; begin < s.dim; begin += kGatedStepRows) {
    const int64_t count = std::min(kGatedStepRows, s.dim - begin);
    for (int64_t i = 0; g && s.decay_dim > 1 && i < count; i += kLanes<T>)
      store(decay.data() + i, vmath::exp(load_first(g + begin + i, count - i)));
    for (int64_t i = 0; i < count; ++i) f(begin + i, decay[static_cast<size_t>(i)]);
  }
}

// Processes the columns [column, column + kVectors * kLanes<T>) of the state, or the columns up to value_dim
// if there are fewer.
template <int kVectors, class T, class O>
void step_gated_columns(const GatedLinearAttentionShape& s, const GatedStepRows<T>& rows, int64_t column,
                        T* state, O* out) {
  int64_t left[kVectors];
  Vector<T> written[kVectors], result[kVectors]{};
  for (int j = 0; j < kVectors; ++j) {
    left[j] = std::max<int64_t>(s.value_dim - column - j * kLanes<T>, 0);
    written[j] = load_first(rows.v + column + j * kLanes<T>, left[j]);
  }
  const auto element = [&](int64_t row, int j) { return state + row * s.value_dim + column + j * kLanes<T>; };
  if (rows.erase)
    for_decayed_rows(
        s, rows.g, [&](int64_t r, T decay) __attribute__((always_inline)) {
          for (int j = 0; j < kVectors; ++j)
            written[j] -= rows.erase[r] * decay * load_first(element(r, j), left[j]);
        });
  for (int j = 0; j < kVectors; ++j) written[j] *= rows.beta;
  for_decayed_rows(
      s, rows.g, [&](int64_t r, T decay) __attribute__((always_inline)) {
        for (int j = 0; j < kVectors; ++j) {
          const Vector<T> updated = decay * load_first(element(r, j), left[j]) + rows.k[r] * written[j];
          store_first(element(r, j), updated, left[j]);
          result[j] += rows.q[r] * updated;
        }
      });
  for (int j = 0; j < kVectors; ++j) store_first<O>(out + column + j * kLanes<T>, result[j], left[j]);
}

}  // namespace

template <class T, class O>
void gated_linear_attention_step(Backend, const GatedLinearAttentionShape& s,
                                 const GatedLinearAttentionInputs<T>& in, T* state, AttentionRows<O> out) {
  constexpr int64_t kWorkPerThread = 1 << 14;  // elements of the state
  constexpr int kVectors = 2;
  const int64_t grain = std::max<int64_t>(kWorkPerThread / (s.dim * s.value_dim), 1);
  parallel_for(s.batch * s.heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / s.heads, head = i % s.heads;
      const auto row = [&](const AttentionRows<const T>& x) {
        return x.data ? x.row(batch, 0, head) : nullptr;
      };
      const T* const beta = row(in.beta);
      const GatedStepRows<T> rows{row(in.q),     row(in.k),         row(in.v),
                                  row(in.erase), row(in.log_decay), beta ? *beta : T{1}};
      for (int64_t column = 0; column < s.value_dim; column += kVectors * kLanes<T>)
        step_gated_columns<kVectors>(s, rows, column, state + i * s.dim * s.value_dim,
                                     out.row(batch, 0, head));
    }
  });
}

template <class T, class O>
struct GatedLinearAttentionStepKernels {
  inline static const FunctionInstances all{&gated_linear_attention_step<T, O>};
};
template struct GatedLinearAttentionStepKernels<float, float>;
template struct GatedLinearAttentionStepKernels<float, BFloat16>;
template struct GatedLinearAttentionStepKernels<double, double>;

}  // namespace tapeformer::cpu
