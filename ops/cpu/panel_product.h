// Products of a few rows with a packed matrix (pack_rows and pack_columns of tile_product.h), for the steps
// of a recurrence. BLAS would pack the matrix at each step. O is the type of the operands: float, double or
// BFloat16.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// Computes c (rows, kTileColumns) = a (rows, depth) b, or c += a b if kAccumulate is true, for at most
// kTileRows rows. The matrix b is one panel. If O is BFloat16, `depth` must be even.
template <bool kAccumulate = false, class O>
void multiply_panel(int64_t rows, const O* a, int64_t a_stride, const O* panel, int64_t depth, Compute<O>* c,
                    int64_t c_stride) {
  static_assert(kTileRows == 6 || kTileRows == 8);
  switch (rows) {
    case 1:
      return compute_tile_product<Left::rows, kAccumulate, 1>(a, a_stride, panel, depth, c, c_stride);
    case 2:
      return compute_tile_product<Left::rows, kAccumulate, 2>(a, a_stride, panel, depth, c, c_stride);
    case 3:
      return compute_tile_product<Left::rows, kAccumulate, 3>(a, a_stride, panel, depth, c, c_stride);
    case 4:
      return compute_tile_product<Left::rows, kAccumulate, 4>(a, a_stride, panel, depth, c, c_stride);
    case 5:
      return compute_tile_product<Left::rows, kAccumulate, 5>(a, a_stride, panel, depth, c, c_stride);
    case 6:
      return compute_tile_product<Left::rows, kAccumulate, 6>(a, a_stride, panel, depth, c, c_stride);
    case 7:
      return compute_tile_product<Left::rows, kAccumulate, 7>(a, a_stride, panel, depth, c, c_stride);
    default:
      return compute_tile_product<Left::rows, kAccumulate, 8>(a, a_stride, panel, depth, c, c_stride);
  }
}

// Computes c (rows, columns) = a (rows, depth) b, where b is packed in panels of `depth` rows. Writes whole
// panels, so each row of c must have room for round_up_to_tile_columns<Compute<O>>(columns) elements. If O is
// BFloat16, `depth` must be even. The result of a row does not depend on the number of rows.
template <class O>
void multiply_panels(int64_t rows, int64_t columns, int64_t depth, const O* a, int64_t a_stride,
                     const O* panels, Compute<O>* c, int64_t c_stride) {
  using T = Compute<O>;
  // Panels are divided into blocks of at most kMaxBlockDepth rows, so that a block of float or BFloat16
  // elements has at most 40 KiB.
  constexpr int64_t kMaxBlockDepth = std::is_same_v<O, BFloat16> ? 640 : 320;
  if (rows == 0) return;
  const int64_t tile_count = (rows + kTileRows - 1) / kTileRows;
  const int64_t block_count = (depth + kMaxBlockDepth - 1) / kMaxBlockDepth;
  for (int64_t block = 0; block < block_count; ++block) {
    const auto first_row = [&](int64_t i) { return compute_packed_depth<O>(depth * i / block_count); };
    const int64_t begin = first_row(block), part_depth = first_row(block + 1) - begin;
    for (int64_t column = 0; column < columns; column += kTileColumns<T>) {
      const O* const panel = panels + column * depth + begin * kTileColumns<T>;
      for (int64_t tile = 0; tile < tile_count; ++tile) {
        const int64_t row = rows * tile / tile_count, row_count = rows * (tile + 1) / tile_count - row;
        const O* const left = a + row * a_stride + begin;
        T* const result = c + row * c_stride + column;
        if (block == 0)
          multiply_panel(row_count, left, a_stride, panel, part_depth, result, c_stride);
        else
          multiply_panel<true>(row_count, left, a_stride, panel, part_depth, result, c_stride);
      }
    }
  }
}

}  // namespace tapeformer::cpu
