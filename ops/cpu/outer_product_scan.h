// The main loop of linear attention, a scan over the tokens t:
//   state += a_t b_tᵀ,   out_t = c_tᵀ state.
// The forward pass and all three gradients are this scan with different operands. A tile of the state stays
// in registers for a chunk of tokens, so the state is loaded and stored once per chunk.
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

enum class ScanMode { update, read, update_then_read };

// The operands of a scan over a chunk of tokens, stored in panels. The operands are named as in the formula
// at the top of this file.
template <class T>
struct ScanOperands {
  const T* a = nullptr;  // one element per token and row of the state
  const T* b = nullptr;  // one element per token and column of the state
  const T* c = nullptr;  // one element per token and row of the state
  T* out = nullptr;      // one element per token and column of the state
};

namespace detail {

// Scans `count` tokens with a tile of the state. The tile has kRows rows of kVectors vectors. The operands
// begin at the first token of the scan. If kStep is -1, the tokens are scanned in descending order. If kAdd
// is true, adds the results to `out`, otherwise overwrites it. In a and c, consecutive tokens are kLeft
// elements apart.
template <ScanMode kMode, int kStep, int kRows, int kVectors, bool kAdd, int64_t kLeft, class T>
void scan_tile(T* state, int64_t state_stride, ScanOperands<T> o, int64_t count) {
  constexpr bool kUpdate = kMode != ScanMode::read, kRead = kMode != ScanMode::update;
  Vector<T> tile[kRows][kVectors];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) tile[r][j] = load(state + r * state_stride + j * kLanes<T>);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t panel_offset = t * kStep * kPanelWidth<T>, left_offset = t * kStep * kLeft;
    if constexpr (kUpdate) {
      Vector<T> right[kVectors];
      for (int j = 0; j < kVectors; ++j) {
        right[j] = load(o.b + panel_offset + j * kLanes<T>);
        keep_in_register(right[j]);
      }
      for (int r = 0; r < kRows; ++r)
        for (int j = 0; j < kVectors; ++j) tile[r][j] += o.a[left_offset + r] * right[j];
    }
    if constexpr (kRead) {
      Vector<T> sum[kVectors];
      for (int j = 0; j < kVectors; ++j)
        sum[j] = kAdd ? load(o.out + panel_offset + j * kLanes<T>) : Vector<T>{};
      for (int r = 0; r < kRows; ++r)
        for (int j = 0; j < kVectors; ++j) sum[j] += o.c[left_offset + r] * tile[r][j];
      for (int j = 0; j < kVectors; ++j) store(o.out + panel_offset + j * kLanes<T>, sum[j]);
    }
  }
  if constexpr (kUpdate)
    for (int r = 0; r < kRows; ++r)
      for (int j = 0; j < kVectors; ++j) store(state + r * state_stride + j * kLanes<T>, tile[r][j]);
}

// Runs scan_outer_products() for columns [column, column + kVectors * kLanes<T>) of a state with the shape
// (rows, padded_columns).
template <ScanMode kMode, int kStep, int kVectors, class T>
void scan_columns(T* state, int64_t rows, int64_t padded_columns, int64_t column, ScanOperands<T> o,
                  int64_t count) {
  constexpr int kTileRows = 4;
  constexpr bool kUpdate = kMode != ScanMode::read, kRead = kMode != ScanMode::update;
  const int64_t first_token = kStep > 0 ? 0 : count - 1;
  const auto scan_rows = [&]<int kRows, bool kAdd>(int64_t row) {
    const int64_t left_offset = compute_panel_index<T>(first_token, row),
                  right_offset = compute_panel_index<T>(first_token, column);
    const ScanOperands<T> tile_operands{
        kUpdate ? o.a + left_offset : nullptr, kUpdate ? o.b + right_offset : nullptr,
        kRead ? o.c + left_offset : nullptr, kRead ? o.out + right_offset : nullptr};
    scan_tile<kMode, kStep, kRows, kVectors, kAdd && kRead, kPanelWidth<T>>(
        state + row * padded_columns + column, padded_columns, tile_operands, count);
  };
  // The first tile overwrites o.out, and the other tiles add to it.
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
// Each row of the state is padded to whole vectors. kMode selects whether each token updates the state, reads
// the state, or updates and then reads the state. If kStep is -1, the tokens are scanned from the last to the
// first. Overwrites o.out for these tokens and does not write o.out for other tokens. `rows` is at least 1.
// Operands that kMode does not use can be null.
template <ScanMode kMode, int kStep = 1, class T>
void scan_outer_products(T* state, int64_t rows, int64_t columns, ScanOperands<T> o, int64_t count) {
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
void scan_row(T* state, int64_t columns, ScanOperands<T> o, int64_t count) {
  if (count == 0) return;
  constexpr bool kUpdate = kMode != ScanMode::read, kRead = kMode != ScanMode::update;
  const int64_t padded_columns = round_up_to_vector<T>(columns), first_token = kStep > 0 ? 0 : count - 1;
  for (int64_t column = 0; column < padded_columns; column += kPanelWidth<T>) {
    const int64_t right_offset = compute_panel_index<T>(first_token, column);
    const ScanOperands<T> tile_operands{
        kUpdate ? o.a + first_token : nullptr, kUpdate ? o.b + right_offset : nullptr,
        kRead ? o.c + first_token : nullptr, kRead ? o.out + right_offset : nullptr};
    if (column + kPanelWidth<T> <= padded_columns)
      detail::scan_tile<kMode, kStep, 1, 2, true, 1>(state + column, padded_columns, tile_operands, count);
    else
      detail::scan_tile<kMode, kStep, 1, 1, true, 1>(state + column, padded_columns, tile_operands, count);
  }
}

}  // namespace tapeformer::cpu
