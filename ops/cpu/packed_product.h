// Matrix products a * b, where `a` has many rows and b is packed in panels (tile_product.h). BLAS, in
// contrast, packs b in each call. The loops are blocked so that a part of a panel stays in L1 and a block of
// packed rows stays in L2 (Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "ops/cpu/panel_product.h"

namespace tapeformer::cpu {

// Sizes of blocks that stay in the caches. For float, kPanelBlockDepth rows of a panel have 16 KiB, which is
// half of a typical L1 cache. kBlockRows packed rows of this depth have at most 192 KiB and stay in L2.
inline constexpr int64_t kPanelBlockDepth = kVectorBytes == 64 ? 128 : 256;
inline constexpr int64_t kBlockRows = 32 * kTileRows;

// Returns the number of rows per block, which is a multiple of kTileRows and at most `max_rows`. The blocks
// have nearly equal size, because a small last block would read all panels for few rows.
inline int64_t choose_block_rows(int64_t rows, int64_t max_rows) {
  const int64_t tile_count = (rows + kTileRows - 1) / kTileRows,
                block_count = std::max<int64_t>((rows + max_rows - 1) / max_rows, 1);
  return std::max<int64_t>((tile_count + block_count - 1) / block_count, 1) * kTileRows;
}

// Packs a (rows, depth) into tiles of kTileRows rows. Each tile is stored column by column. If the last tile
// is incomplete, it is filled with copies of the last row.
template <class T>
void pack_tiles(int64_t rows, int64_t depth, const T* a, int64_t a_stride, T* tiles) {
  constexpr int64_t kVectorElements = kLanes<T>;
  for (int64_t row = 0; row < rows; row += kTileRows, tiles += kTileRows * depth) {
    const T* source_rows[kTileRows];
    for (int64_t r = 0; r < kTileRows; ++r) source_rows[r] = a + std::min(row + r, rows - 1) * a_stride;
    int64_t k = 0;
    for (; k + kVectorElements <= depth; k += kVectorElements)
#pragma GCC unroll 2
      for (int64_t first_row = 0; first_row < kTileRows; first_row += kVectorElements) {
        Vector<T> block[kVectorElements];
        for (int64_t r = 0; r < kVectorElements; ++r)
          block[r] = load(source_rows[std::min(first_row + r, kTileRows - 1)] + k);
        transpose(block);
        for (int64_t l = 0; l < kVectorElements; ++l)
          std::memcpy(tiles + (k + l) * kTileRows + first_row, &block[l],
                      static_cast<size_t>(std::min(kVectorElements, kTileRows - first_row)) * sizeof(T));
      }
    for (; k < depth; ++k)
      for (int64_t r = 0; r < kTileRows; ++r) tiles[k * kTileRows + r] = source_rows[r][k];
  }
}

// Computes c = left * panel, or c += left * panel if kAccumulate is true, for one tile of c. Only the first
// `rows` rows and `columns` columns of the tile are written, and their rounding does not depend on these
// numbers.
template <bool kAccumulate, class T>
void multiply_tile(int64_t rows, int64_t columns, int64_t depth, const T* left, const T* panel, T* c,
                   int64_t c_stride) {
  if (rows >= kTileRows && columns >= kTileColumns<T>)
    return compute_tile_product<Left::columns, kAccumulate>(left, kTileRows, panel, depth, c, c_stride);
  const int64_t row_count = std::min(rows, kTileRows), count = std::min(columns, kTileColumns<T>);
  T values[kTileRows * kTileColumns<T>] = {};
  for (int64_t r = 0; kAccumulate && r < row_count; ++r)
    std::copy_n(c + r * c_stride, count, values + r * kTileColumns<T>);
  compute_tile_product<Left::columns, kAccumulate>(left, kTileRows, panel, depth, values, kTileColumns<T>);
  for (int64_t r = 0; r < row_count; ++r) std::copy_n(values + r * kTileColumns<T>, count, c + r * c_stride);
}

// Computes c (rows, columns) = a (rows, depth) b, or c += a b if kAccumulate is true. `panels` contains b,
// packed in panels of kTileColumns columns and `depth` rows.
template <bool kAccumulate = false, class T>
void multiply_packed_panels(int64_t rows, int64_t columns, int64_t depth, const T* a, int64_t a_stride,
                            const T* panels, T* c, int64_t c_stride) {
  // The buffer is on the heap, because the stack of a thread can be too small. The buffer does not use the
  // CachingAllocator, so that the allocator's peak memory does not depend on the scheduling of threads.
  struct TileBuffer {
    alignas(64) T values[kBlockRows * kPanelBlockDepth];
  };
  static thread_local const auto tile_buffer = std::make_unique<TileBuffer>();
  T* const tiles = tile_buffer->values;
  const int64_t block_rows = choose_block_rows(rows, kBlockRows);
  for (int64_t row = 0; row < rows; row += block_rows)
    for (int64_t k = 0; k < depth; k += kPanelBlockDepth) {
      const int64_t row_count = std::min(block_rows, rows - row),
                    part_depth = std::min(kPanelBlockDepth, depth - k);
      pack_tiles(row_count, part_depth, a + row * a_stride + k, a_stride, tiles);
      for (int64_t column = 0; column < columns; column += kTileColumns<T>)
        for (int64_t r = 0; r < row_count; r += kTileRows) {
          const T* const tile = tiles + r * part_depth;
          const T* const panel = panels + column * depth + k * kTileColumns<T>;
          T* const target = c + (row + r) * c_stride + column;
          if (!kAccumulate && k == 0)
            multiply_tile<false>(row_count - r, columns - column, part_depth, tile, panel, target, c_stride);
          else
            multiply_tile<true>(row_count - r, columns - column, part_depth, tile, panel, target, c_stride);
        }
    }
}

}  // namespace tapeformer::cpu
