// A few rows times a matrix that was packed once (pack_rows, pack_columns of tile_product.h) and is used at
// every step of a recurrence. BLAS would pack it again each time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {
namespace detail {

// c (kRows, kTileColumns) = a (kRows, depth) b
template <int kRows, class T>
void panel_tile(const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c, int64_t c_stride) {
  Vector<T> tile[kRows][2] = {};
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> right[2];
    for (int j = 0; j < 2; ++j) {
      right[j] = load(panel + k * kTileColumns<T> + j * kLanes<T>);
      keep_in_register(right[j]);
    }
    for (int r = 0; r < kRows; ++r) {
      const T left = a[r * a_stride + k];
      for (int j = 0; j < 2; ++j) tile[r][j] += left * right[j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) store(c + r * c_stride + j * kLanes<T>, tile[r][j]);
}

template <class T>
void panel_rows(int64_t rows, const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c,
                int64_t c_stride) {
  switch (rows) {
    case 1:
      return panel_tile<1>(a, a_stride, panel, depth, c, c_stride);
    case 2:
      return panel_tile<2>(a, a_stride, panel, depth, c, c_stride);
    case 3:
      return panel_tile<3>(a, a_stride, panel, depth, c, c_stride);
    case 4:
      return panel_tile<4>(a, a_stride, panel, depth, c, c_stride);
    case 5:
      return panel_tile<5>(a, a_stride, panel, depth, c, c_stride);
    default:
      return panel_tile<6>(a, a_stride, panel, depth, c, c_stride);
  }
}

}  // namespace detail

// c (rows, columns) = a (rows, depth) b, b in panels of `depth` rows; rows of c have room for whole panels.
// A row's sums do not depend on how many rows there are.
template <class T>
void panel_product(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride,
                   const T* panels, T* c, int64_t c_stride) {
  if (rows == 0) return;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (int64_t column = 0; column < columns; column += kTileColumns<T>)
    for (int64_t tile = 0; tile < tiles; ++tile) {
      const int64_t first = rows * tile / tiles, last = rows * (tile + 1) / tiles;
      detail::panel_rows(last - first, a + first * a_stride, a_stride, panels + column * depth, depth,
                         c + first * c_stride + column, c_stride);
    }
}

}  // namespace tapeformer::cpu
