// A few rows times a matrix that was packed once (pack_rows, pack_columns of tile_product.h) and is used at
// every step of a recurrence. BLAS would pack it again each time.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// c (rows, kTileColumns) = a (rows, depth) b, up to a whole tile of rows.
template <class T>
void panel_rows(int64_t rows, const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c,
                int64_t c_stride) {
  switch (rows) {
    case 1:
      return tile_product<Left::rows, false, 1>(a, a_stride, panel, depth, c, c_stride);
    case 2:
      return tile_product<Left::rows, false, 2>(a, a_stride, panel, depth, c, c_stride);
    case 3:
      return tile_product<Left::rows, false, 3>(a, a_stride, panel, depth, c, c_stride);
    case 4:
      return tile_product<Left::rows, false, 4>(a, a_stride, panel, depth, c, c_stride);
    case 5:
      return tile_product<Left::rows, false, 5>(a, a_stride, panel, depth, c, c_stride);
    default:
      return tile_product<Left::rows, false, 6>(a, a_stride, panel, depth, c, c_stride);
  }
}

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
      panel_rows(last - first, a + first * a_stride, a_stride, panels + column * depth, depth,
                 c + first * c_stride + column, c_stride);
    }
}

}  // namespace tapeformer::cpu
