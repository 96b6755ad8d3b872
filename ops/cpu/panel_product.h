// Products of a few rows with a packed matrix (pack_rows and pack_columns of tile_product.h), for decoding
// and for the steps of a recurrence. BLAS would pack the matrix at each step. O is the type of the left
// operand: float, double or BFloat16. W is the type of the elements of the packed matrix: O, or BFloat16 if O
// is float. If O is BFloat16, the depth of products must be even.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// Computes c = a (kRows, depth) b, or c += a b if kAccumulate is true, for the first panels of b. Returns the
// number of panels, from 1 to panel_count. Several panels at a time give products with one or two rows enough
// independent sums to hide the latency of additions.
template <int kRows, bool kAccumulate, class O, class W>
int64_t multiply_first_panels(int64_t panel_count, const O* a, int64_t a_stride, const W* panels,
                              int64_t panel_stride, int64_t depth, Compute<O>* c, int64_t c_stride) {
  constexpr int kPanels = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  if (panel_count < kPanels) {
    compute_tile_product<Left::rows, kAccumulate, kRows>(a, a_stride, panels, depth, c, c_stride);
    return 1;
  }
  compute_tile_product<Left::rows, kAccumulate, kRows, kPanels>(a, a_stride, panels, depth, c, c_stride,
                                                                panel_stride);
  return kPanels;
}

// Calls multiply_first_panels() for a tile of `rows` rows, from 1 to kTileRows.
template <bool kAccumulate, class... Args>
int64_t multiply_first_panels(int64_t rows, Args... args) {
  int64_t panel_count = 0;
  const auto multiply = [&]<int... kIndex>(std::integer_sequence<int, kIndex...>) {
    (void)((rows == kIndex + 1 &&
            (panel_count = multiply_first_panels<kIndex + 1, kAccumulate>(args...), true)) ||
           ...);
  };
  multiply(std::make_integer_sequence<int, static_cast<int>(kTileRows)>());
  return panel_count;
}

// Computes the first `columns` columns of a tile, fewer than a panel has, without writing to other columns.
template <bool kAccumulate, class O, class W>
void multiply_incomplete_panel(int64_t rows, int64_t columns, const O* a, int64_t a_stride, const W* panel,
                               int64_t depth, Compute<O>* c, int64_t c_stride) {
  using T = Compute<O>;
  T values[kTileRows * kTileColumns<T>] = {};
  for (int64_t r = 0; kAccumulate && r < rows; ++r)
    std::copy_n(c + r * c_stride, columns, values + r * kTileColumns<T>);
  multiply_first_panels<kAccumulate>(rows, 1, a, a_stride, panel, 0, depth, values, kTileColumns<T>);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(values + r * kTileColumns<T>, columns, c + r * c_stride);
}

// Computes c (rows, columns) = a (rows, depth) b, where b is packed in panels of `depth` rows. Writes whole
// panels where the `room` elements from the start of a row of c suffice. The result of a row does not depend
// on the number of rows.
template <class O, class W>
void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const O* a, int64_t a_stride,
                     const W* panels, Compute<O>* c, int64_t c_stride, int64_t room) {
  using T = Compute<O>;
  // Panels are divided into blocks of at most kMaxBlockDepth rows, so that a block of float or BFloat16
  // elements has at most 40 KiB.
  constexpr int64_t kMaxBlockDepth = std::is_same_v<W, BFloat16> ? 640 : 320;
  if (rows == 0) return;
  const int64_t tile_count = (rows + kTileRows - 1) / kTileRows;
  const int64_t block_count =
      tile_count == 1 ? 1 : std::max<int64_t>((depth + kMaxBlockDepth - 1) / kMaxBlockDepth, 1);
  const int64_t last_column = std::min(round_up_to_tile_columns<T>(columns), room);
  for (int64_t block = 0; block < block_count; ++block) {
    const auto first_row = [&](int64_t i) { return compute_packed_depth<O>(depth * i / block_count); };
    const int64_t begin = first_row(block), part_depth = first_row(block + 1) - begin;
    int64_t panel_count = 1;
    for (int64_t column = 0; column < columns; column += panel_count * kTileColumns<T>) {
      const W* const panel = panels + column * depth + begin * kTileColumns<T>;
      for (int64_t tile = 0; tile < tile_count; ++tile) {
        const int64_t row = rows * tile / tile_count, row_count = rows * (tile + 1) / tile_count - row;
        const O* const left = a + row * a_stride + begin;
        T* const result = c + row * c_stride + column;
        const auto multiply = [&]<bool kAccumulate>(std::bool_constant<kAccumulate>) {
          const int64_t whole = (last_column - column) / kTileColumns<T>;
          if (whole == 0)
            multiply_incomplete_panel<kAccumulate>(row_count, columns - column, left, a_stride, panel,
                                                   part_depth, result, c_stride);
          else
            panel_count =
                multiply_first_panels<kAccumulate>(row_count, whole, left, a_stride, panel,
                                                   depth * kTileColumns<T>, part_depth, result, c_stride);
        };
        if (block == 0)
          multiply(std::bool_constant<false>());
        else
          multiply(std::bool_constant<true>());
      }
    }
  }
}

}  // namespace tapeformer::cpu
