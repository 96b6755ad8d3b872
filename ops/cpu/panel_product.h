// Products of a few rows with a packed matrix (pack_rows and pack_columns of tile_product.h), for the steps
// of a recurrence. BLAS would pack the matrix at each step.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// Computes c (rows, kTileColumns) = a (rows, depth) b, or c += a b if kAdd is true, for at most kTileRows
// rows. b is one panel.
template <bool kAdd = false, class T>
void multiply_panel(int64_t rows, const T* a, int64_t a_stride, const T* panel, int64_t depth, T* c,
                    int64_t c_stride) {
  static_assert(kTileRows == 6 || kTileRows == 8);
  switch (rows) {
    case 1:
      return tile_product<Left::rows, kAdd, 1>(a, a_stride, panel, depth, c, c_stride);
    case 2:
      return tile_product<Left::rows, kAdd, 2>(a, a_stride, panel, depth, c, c_stride);
    case 3:
      return tile_product<Left::rows, kAdd, 3>(a, a_stride, panel, depth, c, c_stride);
    case 4:
      return tile_product<Left::rows, kAdd, 4>(a, a_stride, panel, depth, c, c_stride);
    case 5:
      return tile_product<Left::rows, kAdd, 5>(a, a_stride, panel, depth, c, c_stride);
    case 6:
      return tile_product<Left::rows, kAdd, 6>(a, a_stride, panel, depth, c, c_stride);
    case 7:
      return tile_product<Left::rows, kAdd, 7>(a, a_stride, panel, depth, c, c_stride);
    default:
      return tile_product<Left::rows, kAdd, 8>(a, a_stride, panel, depth, c, c_stride);
  }
}

// Computes c (rows, columns) = a (rows, depth) b, with b in panels of `depth` rows. The function writes whole
// panels, so each row of c must have room for tile_columns<T>(columns) elements. The sums of a row do not
// depend on the number of rows. The depth is divided into blocks, so that a part of a panel stays in L1 for
// all tiles of rows.
template <class T>
void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride,
                     const T* panels, T* c, int64_t c_stride) {
  constexpr int64_t kBlock = 320;  // maximum depth of a block
  if (rows == 0) return;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t blocks = (depth + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = depth * block / blocks, count = depth * (block + 1) / blocks - begin;
    for (int64_t column = 0; column < columns; column += kTileColumns<T>) {
      const T* const panel = panels + column * depth + begin * kTileColumns<T>;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t first = rows * tile / tiles, tile_rows = rows * (tile + 1) / tiles - first;
        const T* const left = a + first * a_stride + begin;
        T* const result = c + first * c_stride + column;
        if (block == 0)
          multiply_panel(tile_rows, left, a_stride, panel, count, result, c_stride);
        else
          multiply_panel<true>(tile_rows, left, a_stride, panel, count, result, c_stride);
      }
    }
  }
}

}  // namespace tapeformer::cpu
