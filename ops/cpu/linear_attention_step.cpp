#include <array>
#include <type_traits>

#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "core/scratch.h"
#include "core/threads/threads.h"
#include "ops/cpu/feature_map.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer::cpu {
namespace {

// Number of rows of the state that are processed at a time.
constexpr int64_t kDimBlock = 64;

// Adds k[r] * v to each row r of the state, and then adds q[r] times the updated row to `out`. Processes only
// the first kVectors * kLanes<T> columns of `state`, v and `out`. `width` is the row stride of the state.
template <int kVectors, class T>
void step_columns(T* state, int64_t width, int64_t rows, const T* q, const T* k, const T* v, T* out) {
  Vector<T> value[kVectors], result[kVectors];
  for (int j = 0; j < kVectors; ++j) {
    value[j] = load(v + j * kLanes<T>);
    result[j] = load(out + j * kLanes<T>);
  }
  for (int64_t r = 0; r < rows; ++r) {
    T* const row = state + r * width;
    for (int j = 0; j < kVectors; ++j) {
      const Vector<T> s = load(row + j * kLanes<T>) + k[r] * value[j];
      store(row + j * kLanes<T>, s);
      result[j] += q[r] * s;
    }
  }
  for (int j = 0; j < kVectors; ++j) store(out + j * kLanes<T>, result[j]);
}

template <class T>
void step_block(T* state, int64_t width, int64_t rows, const T* q, const T* k, const T* v, T* out) {
  constexpr int kVectors = 4;
  int64_t i = 0;
  for (; i + kVectors * kLanes<T> <= width; i += kVectors * kLanes<T>)
    step_columns<kVectors>(state + i, width, rows, q, k, v + i, out + i);
  for (; i + kLanes<T> <= width; i += kLanes<T>)
    step_columns<1>(state + i, width, rows, q, k, v + i, out + i);
  for (; i < width; ++i)
    for (int64_t r = 0; r < rows; ++r) {
      state[r * width + i] += k[r] * v[i];
      out[i] += q[r] * state[r * width + i];
    }
}

// The rows of one head. If numerator_q or numerator_k is null, step_head() uses phi(q) or phi(k).
template <class T>
struct HeadRows {
  const T *q, *k, *v, *numerator_q, *numerator_k;
};

template <class T>
void step_head(const LinearAttentionShape& s, const HeadRows<T>& rows, T* kv, T* key_sum, T* out) {
  std::fill_n(out, s.value_dim, T{0});
  T denominator = static_cast<T>(s.eps);
  for (int64_t begin = 0; begin < s.dim; begin += kDimBlock) {
    const int64_t count = std::min(kDimBlock, s.dim - begin);
    std::array<T, kDimBlock> query, key;
    visit_feature_map(s.feature_map, [&](auto phi) {
      for (int64_t i = 0; i < count; i += kLanes<T>) {
        const int64_t left = count - i;
        const auto features_of = [&](const T* row) {
          return phi.template value<VectorMath>(load_first(row + begin + i, left));
        };
        const Vector<T> features_q = features_of(rows.q);
        const Vector<T> features_k = keep_first<T>(features_of(rows.k), left);
        const Vector<T> z = load_first(key_sum + begin + i, left) + features_k;
        store_first(key_sum + begin + i, z, left);
        denominator += sum(features_q * z);
        store(query.data() + i,
              rows.numerator_q ? load_first(rows.numerator_q + begin + i, left) : features_q);
        store(key.data() + i, rows.numerator_k ? load_first(rows.numerator_k + begin + i, left) : features_k);
      }
    });
    step_block(kv + begin * s.value_dim, s.value_dim, count, query.data(), key.data(), rows.v, out);
  }
  const T inverse = 1 / denominator;
  for (int64_t i = 0; i < s.value_dim; ++i) out[i] *= inverse;
}

}  // namespace

template <class T, class O>
void linear_attention_step(Backend, const LinearAttentionShape& s, AttentionRows<const T> q,
                           AttentionRows<const T> k, AttentionRows<const T> v,
                           AttentionRows<const T> numerator_q, AttentionRows<const T> numerator_k, T* kv,
                           T* key_sum, AttentionRows<O> out) {
  constexpr bool kRounds = !std::is_same_v<T, O>;
  // Minimum number of heads per thread.
  const int64_t grain = std::max<int64_t>((1 << 15) / (s.dim * s.value_dim), 1);
  parallel_for(s.batch * s.heads, grain, [&](int64_t begin, int64_t end) {
    const Scratch<T> result(kRounds ? s.value_dim : 0);
    for (int64_t i = begin; i < end; ++i) {
      const int64_t batch = i / s.heads, head = i % s.heads;
      O* const target = out.row(batch, 0, head);
      T* row = result.data();
      if constexpr (!kRounds) row = target;
      const auto row_of = [&](const AttentionRows<const T>& x) {
        return x.data ? x.row(batch, 0, head) : nullptr;
      };
      step_head<T>(s, {row_of(q), row_of(k), row_of(v), row_of(numerator_q), row_of(numerator_k)},
                   kv + i * s.dim * s.value_dim, key_sum + i * s.dim, row);
      if constexpr (kRounds) convert_elements(row, s.value_dim, target);
    }
  });
}

template <class T, class O>
struct LinearAttentionStepKernels {
  inline static const FunctionInstances all{&linear_attention_step<T, O>};
};
template struct LinearAttentionStepKernels<float, float>;
template struct LinearAttentionStepKernels<float, BFloat16>;
template struct LinearAttentionStepKernels<double, double>;

}  // namespace tapeformer::cpu
