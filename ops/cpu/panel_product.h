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

// c += a b for a tile of kRows rows, while what comes next is fetched, `ahead_step` elements for every k.
template <int kRows, class T>
void tile_product_ahead(const T* a, int64_t a_stride, const T* b, int64_t depth, T* c, int64_t c_stride,
                        bool add, const T* ahead, int64_t ahead_step) {
  Vector<T> tile[kRows][2];
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) tile[r][j] = add ? load(c + r * c_stride + j * kLanes<T>) : Vector<T>{};
  for (int64_t k = 0; k < depth; ++k) {
    __builtin_prefetch(ahead + k * ahead_step);
    Vector<T> right[2];
    for (int j = 0; j < 2; ++j) {
      right[j] = load(b + k * kTileColumns<T> + j * kLanes<T>);
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

// c (rows, columns) = a (rows, depth) b, b in panels of `depth` rows; rows of c have room for whole panels.
// A row's sums do not depend on how many rows there are. The depth is taken in blocks whose part of a panel
// stays in the first-level cache, and the next part is fetched meanwhile: the panels of a recurrence are
// larger than the second-level cache, so that all of them come from further away at every step.
template <class T>
void panel_product(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride,
                   const T* panels, T* c, int64_t c_stride) {
  constexpr int64_t kBlock = 320;
  if (rows == 0) return;
  const int64_t tiles = (rows + kTileRows - 1) / kTileRows;
  const int64_t blocks = (depth + kBlock - 1) / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    const int64_t begin = depth * block / blocks, count = depth * (block + 1) / blocks - begin;
    for (int64_t column = 0; column < columns; column += kTileColumns<T>) {
      const T* const panel = panels + column * depth + begin * kTileColumns<T>;
      const int64_t step = kTileColumns<T> / tiles;
      for (int64_t tile = 0; tile < tiles; ++tile) {
        const int64_t first = rows * tile / tiles;
        const T* const ahead = panel + kTileColumns<T> * depth + tile * step * count;
        const T* const left = a + first * a_stride + begin;
        T* const result = c + first * c_stride + column;
        switch (rows * (tile + 1) / tiles - first) {
          case 1:
            tile_product_ahead<1>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
            break;
          case 2:
            tile_product_ahead<2>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
            break;
          case 3:
            tile_product_ahead<3>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
            break;
          case 4:
            tile_product_ahead<4>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
            break;
          case 5:
            tile_product_ahead<5>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
            break;
          default:
            tile_product_ahead<6>(left, a_stride, panel, count, result, c_stride, block > 0, ahead, step);
        }
      }
    }
  }
}

}  // namespace tapeformer::cpu
