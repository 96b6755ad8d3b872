// The main loop of linear attention, a scan over the tokens t:
//   state += a_t b_tᵀ,   out_t = c_tᵀ state.
// The forward pass and all three gradients are this scan with different operands. A tile of the state stays
// in registers for a chunk of tokens, so the state is loaded and stored once per chunk. Gated linear
// attention (ops/cpu/gated_linear_attention.cpp) adds the steps that ScanMode lists.
//
// The operands of a chunk are stored in panels. The first panel holds elements 0 to kPanelWidth - 1 of each
// token, the second panel holds the next kPanelWidth elements of each token, and so on.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/vector.h"

namespace tapeformer::cpu {

// Tokens per chunk. The number is not a power of two, so that panels do not map to the same cache sets.
inline constexpr int64_t kChunkTokens = 96;

// Number of elements per token in a panel, which is the number of elements in two vectors.
template <class T>
inline constexpr int64_t kPanelWidth = 2 * kLanes<T>;

// Returns the total number of elements in the panels of a chunk of tokens with `elements` elements each.
template <class T>
constexpr int64_t compute_panel_size(int64_t elements) {
  return (elements + kPanelWidth<T> - 1) / kPanelWidth<T> * kPanelWidth<T> * kChunkTokens;
}
// Returns the index of an element of a token in the panels of a chunk.
template <class T>
constexpr int64_t compute_panel_index(int64_t token, int64_t element) {
  return element / kPanelWidth<T> * kPanelWidth<T> * kChunkTokens + token * kPanelWidth<T> +
         element % kPanelWidth<T>;
}
// Returns the `element` for which compute_panel_index(token, element) is `index`.
template <class T>
constexpr int64_t get_panel_element(int64_t index) {
  return index / (kPanelWidth<T> * kChunkTokens) * kPanelWidth<T> + index % kPanelWidth<T>;
}

enum class ScanDecay { none, rows, columns };

// The steps of a scan for each token, in this order:
struct ScanMode {
  ScanDecay decay = ScanDecay::none;  // rows or columns of the state are multiplied by `decay`
  bool read_first = false;            // first_out = first_cᵀ state
  bool updates = false;               // state += a bᵀ
  bool reads = false;                 // out = cᵀ state
  bool updates_last = false;          // state += last_a last_bᵀ

  static const ScanMode update, read, update_then_read;
  constexpr bool operator==(const ScanMode&) const = default;
};
inline constexpr ScanMode ScanMode::update{.updates = true};
inline constexpr ScanMode ScanMode::read{.reads = true};
inline constexpr ScanMode ScanMode::update_then_read{.updates = true, .reads = true};

// The operands of a scan over a chunk of tokens, stored in panels. The operands are named as in ScanMode. a
// and c have one element per token and row of the state. b and `out` have one element per token and column
// of the state.
template <class T>
struct ScanOperands {
  const T *a = nullptr, *b = nullptr, *c = nullptr;
  T* out = nullptr;
  const T* decay = nullptr;  // one element per token and row, or per token and column
  const T* first_c = nullptr;
  T* first_out = nullptr;
  const T *last_a = nullptr, *last_b = nullptr;

  // Returns the operands of the tile at a row and a column of the state. `left` and `right` are the offsets
  // of the row and of the column in the panels.
  ScanOperands at(ScanDecay axis, int64_t left, int64_t right) const {
    const auto move = [](auto* x, int64_t offset) { return x ? x + offset : nullptr; };
    return {move(a, left),
            move(b, right),
            move(c, left),
            move(out, right),
            move(decay, axis == ScanDecay::rows ? left : right),
            move(first_c, left),
            move(first_out, right),
            move(last_a, left),
            move(last_b, right)};
  }
};

namespace detail {

// A tile of the state in registers, and the steps of ScanMode for one token. `left` is the address of the
// element of an operand for the first row, and `right` the address for the first column.
template <int kRows, int kVectors, class T>
struct StateTile {
  Vector<T> rows[kRows][kVectors];

  [[gnu::always_inline]] void decay_rows(const T* left) {
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) rows[r][j] *= left[r];
  }
  [[gnu::always_inline]] void decay_columns(const T* right) {
    for (int j = 0; j < kVectors; ++j) {
      const Vector<T> decay = load(right + j * kLanes<T>);
      for (int r = 0; r < kRows; ++r) rows[r][j] *= decay;
    }
  }
  [[gnu::always_inline]] void update(const T* left, const T* right) {
    Vector<T> added[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      added[j] = load(right + j * kLanes<T>);
      keep_in_register(added[j]);
    }
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) rows[r][j] += left[r] * added[j];
  }
  // If kAdd is true, adds the result to `out`, otherwise overwrites `out`.
  template <bool kAdd>
  [[gnu::always_inline]] void read(const T* left, T* out) const {
    Vector<T> sum[kVectors];
    for (int j = 0; j < kVectors; ++j) sum[j] = kAdd ? load(out + j * kLanes<T>) : Vector<T>{};
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) sum[j] += left[r] * rows[r][j];
    for (int j = 0; j < kVectors; ++j) store(out + j * kLanes<T>, sum[j]);
  }
};

// Scans `count` tokens with a tile of the state. The operands begin at the first token of the scan. If kStep
// is -1, the tokens are scanned in descending order. If kAdd is true, adds the results to `out`, otherwise
// overwrites it. In operands with one element per row, consecutive tokens are kLeft elements apart.
template <ScanMode kMode, int kStep, int kRows, int kVectors, bool kAdd, int64_t kLeft, class T>
void scan_tile(T* state, int64_t state_stride, ScanOperands<T> o, int64_t count) {
  constexpr bool kWrites = kMode.updates || kMode.updates_last || kMode.decay != ScanDecay::none;
  StateTile<kRows, kVectors, T> tile;
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) tile.rows[r][j] = load(state + r * state_stride + j * kLanes<T>);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t right = t * kStep * kPanelWidth<T>, left = t * kStep * kLeft;
    if constexpr (kMode.decay == ScanDecay::rows) tile.decay_rows(o.decay + left);
    if constexpr (kMode.decay == ScanDecay::columns) tile.decay_columns(o.decay + right);
    if constexpr (kMode.read_first) tile.template read<kAdd>(o.first_c + left, o.first_out + right);
    if constexpr (kMode.updates) tile.update(o.a + left, o.b + right);
    if constexpr (kMode.reads) tile.template read<kAdd>(o.c + left, o.out + right);
    if constexpr (kMode.updates_last) tile.update(o.last_a + left, o.last_b + right);
  }
  if constexpr (kWrites)
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) store(state + r * state_stride + j * kLanes<T>, tile.rows[r][j]);
}

// Runs scan_outer_products() for columns [column, column + kVectors * kLanes<T>) of a state with the shape
// (rows, padded_columns).
template <ScanMode kMode, int kStep, int kVectors, class T>
void scan_columns(T* state, int64_t rows, int64_t padded_columns, int64_t column, const ScanOperands<T>& o,
                  int64_t count) {
  constexpr int kTileRows = 4;
  const int64_t first_token = kStep > 0 ? 0 : count - 1;
  const auto scan_rows = [&]<int kRows, bool kAdd>(int64_t row) {
    scan_tile<kMode, kStep, kRows, kVectors, kAdd, kPanelWidth<T>>(
        state + row * padded_columns + column, padded_columns,
        o.at(kMode.decay, compute_panel_index<T>(first_token, row),
             compute_panel_index<T>(first_token, column)),
        count);
  };
  // The first tile overwrites the results, and the other tiles add to them.
  int64_t row = rows < kTileRows ? 1 : kTileRows;
  if (row == 1)
    scan_rows.template operator()<1, false>(0);
  else
    scan_rows.template operator()<kTileRows, false>(0);
  for (; row + kTileRows <= rows; row += kTileRows) scan_rows.template operator()<kTileRows, true>(row);
  for (; row < rows; ++row) scan_rows.template operator()<1, true>(row);
}

}  // namespace detail

// Computes the formula at the top of this file for `count` tokens and a state with the shape (rows, columns).
// Each row of the state is padded to whole vectors. kMode selects the steps of each token. If kStep is -1,
// the tokens are scanned from the last to the first. Overwrites o.out and o.first_out for these tokens and
// does not write them for other tokens. `rows` is at least 1. Operands that kMode does not use can be null.
template <ScanMode kMode, int kStep = 1, class T>
void scan_outer_products(T* state, int64_t rows, int64_t columns, const ScanOperands<T>& o, int64_t count) {
  if (count == 0) return;
  const int64_t padded_columns = round_up_to_vector<T>(columns);
  int64_t column = 0;
  for (; column + kPanelWidth<T> <= padded_columns; column += kPanelWidth<T>)
    detail::scan_columns<kMode, kStep, 2>(state, rows, padded_columns, column, o, count);
  if (column < padded_columns)
    detail::scan_columns<kMode, kStep, 1>(state, rows, padded_columns, column, o, count);
}

// Like scan_outer_products() for a state with one row, but adds the results to o.out. The operands a and c
// are contiguous arrays with one element per token instead of panels.
template <ScanMode kMode, int kStep = 1, class T>
void scan_row(T* state, int64_t columns, const ScanOperands<T>& o, int64_t count) {
  if (count == 0) return;
  const int64_t padded_columns = round_up_to_vector<T>(columns), first_token = kStep > 0 ? 0 : count - 1;
  for (int64_t column = 0; column < padded_columns; column += kPanelWidth<T>) {
    const ScanOperands<T> tile = o.at(kMode.decay, first_token, compute_panel_index<T>(first_token, column));
    if (column + kPanelWidth<T> <= padded_columns)
      detail::scan_tile<kMode, kStep, 1, 2, true, 1>(state + column, padded_columns, tile, count);
    else
      detail::scan_tile<kMode, kStep, 1, 1, true, 1>(state + column, padded_columns, tile, count);
  }
}

}  // namespace tapeformer::cpu
