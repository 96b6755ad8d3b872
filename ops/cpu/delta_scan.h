// The scans of gated linear attention whose tokens must know what the state returns before they write it. The
// rows of the state depend on each other within a token, so a scan keeps all rows of a few columns in the
// cache, and passes over the rows once per token. Operands are stored in the panels of outer_product_scan.h.
#pragma once

#include "ops/cpu/outer_product_scan.h"

namespace tapeformer::cpu {

// The operands of a chunk of tokens. The names are those of ops/kernels/gated_linear_attention.h: d is
// exp(g), the decay, applied to the state before the token.
//
// Forward, for each token:
//   u = value - stateᵀ(d ∘ p),  state = d ∘ state + update uᵀ,  out = stateᵀ read.
// Backward, from the last token to the first:
//   u = stateᵀ(d ∘ k) + dot value,  state = d ∘ state + update valueᵀ + erase uᵀ.
//
// In the backward scan, the state is the gradient of the state, `value` is the gradient of out, update is q,
// dot is q . k, erase is -p, and u is the gradient of u.
template <class T>
struct DeltaOperands {
  const T* decay = nullptr;   // d, one element per token and row of the state
  const T* probe = nullptr;   // d ∘ p or d ∘ k, likewise
  const T* update = nullptr;  // k or q, likewise
  const T* erase = nullptr;   // -p, likewise; backward only
  const T* read = nullptr;    // q, likewise; forward only
  const T* dot = nullptr;     // one element per token; backward only
  const T* value = nullptr;   // one element per token and column of the state
  T* u = nullptr;             // likewise; can be the same array as `value` in the forward scan
  T* out = nullptr;           // likewise; forward only
};

namespace detail {

// Calls f(row, offset) for each row of the state. `offset` is the index of the row's element of token 0 in
// the panels.
template <class T, class F>
[[gnu::always_inline]] inline void for_rows(int64_t rows, F f) {
  for (int64_t block = 0; block < rows; block += kPanelWidth<T>) {
    const int64_t count = std::min(kPanelWidth<T>, rows - block), offset = compute_panel_index<T>(0, block);
    for (int64_t i = 0; i < count; ++i) f(block + i, offset + i);
  }
}

// Processes token t for columns [column, column + kVectors * kLanes<T>) of the state (rows, stride). On
// entry, `probed` is stateᵀ probe for token t; on return, it is stateᵀ probe for token t + 1, unless kIsLast
// is true.
template <bool kIsForward, bool kIsLast, int kVectors, class T>
[[gnu::always_inline]] inline void scan_delta_token(T* state, int64_t rows, int64_t stride, int64_t column,
                                                    const DeltaOperands<T>& o, int64_t t,
                                                    Vector<T> (&probed)[kVectors]) {
  const int64_t right = compute_panel_index<T>(t, column), left = t * kPanelWidth<T>;
  Vector<T> value[kVectors], u[kVectors], out[kVectors]{};
  for (int j = 0; j < kVectors; ++j) {
    value[j] = load(o.value + right + j * kLanes<T>);
    u[j] = kIsForward ? value[j] - probed[j] : probed[j] + o.dot[t] * value[j];
    store(o.u + right + j * kLanes<T>, u[j]);
    probed[j] = Vector<T>{};
  }
  for_rows<T>(
      rows, [&](int64_t row, int64_t offset) __attribute__((always_inline)) {
        const int64_t at = offset + left;
        T* const target = state + row * stride + column;
        for (int j = 0; j < kVectors; ++j) {
          Vector<T> s =
              o.decay[at] * load(target + j * kLanes<T>) + o.update[at] * (kIsForward ? u[j] : value[j]);
          if constexpr (kIsForward)
            out[j] += o.read[at] * s;
          else
            s += o.erase[at] * u[j];
          if constexpr (!kIsLast) probed[j] += o.probe[at + kPanelWidth<T>] * s;
          store(target + j * kLanes<T>, s);
        }
      });
  if constexpr (kIsForward)
    for (int j = 0; j < kVectors; ++j) store(o.out + right + j * kLanes<T>, out[j]);
}

template <bool kIsForward, int kVectors, class T>
void scan_delta_columns(T* state, int64_t rows, int64_t stride, int64_t column, const DeltaOperands<T>& o,
                        int64_t count) {
  Vector<T> probed[kVectors]{};
  for_rows<T>(
      rows, [&](int64_t row, int64_t offset) __attribute__((always_inline)) {
        for (int j = 0; j < kVectors; ++j)
          probed[j] += o.probe[offset] * load(state + row * stride + column + j * kLanes<T>);
      });
  for (int64_t t = 0; t + 1 < count; ++t)
    scan_delta_token<kIsForward, false>(state, rows, stride, column, o, t, probed);
  scan_delta_token<kIsForward, true>(state, rows, stride, column, o, count - 1, probed);
}

}  // namespace detail

// Scans `count` tokens, at least 1, in ascending order of their index in the panels, with a state (rows,
// columns) whose rows are padded to whole vectors.
template <bool kIsForward, class T>
void scan_delta(T* state, int64_t rows, int64_t columns, const DeltaOperands<T>& o, int64_t count) {
  const int64_t stride = round_up_to_vector<T>(columns);
  int64_t column = 0;
  for (; column + kPanelWidth<T> <= stride; column += kPanelWidth<T>)
    detail::scan_delta_columns<kIsForward, 2>(state, rows, stride, column, o, count);
  if (column < stride) detail::scan_delta_columns<kIsForward, 1>(state, rows, stride, column, o, count);
}

}  // namespace tapeformer::cpu
