// Products of small matrices, one tile of the result at a time. A tile of the result stays in registers for
// the whole depth. The left operand is read in place. The right operand is packed in panels, which are
// matrices of kTileColumns columns.
//
// If the operands are BFloat16, two elements that are adjacent along the depth are stored as a pair
// (core/cpu/bfloat16_pairs.h). Zeros pad the depth to whole pairs. The sums are float.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/cpu/bfloat16_pairs.h"
#include "core/cpu/vector.h"

namespace tapeformer::cpu {

// Rows and columns of a tile. The sums of a tile stay in registers: 8 rows of two vectors in the 32 registers
// of AVX-512, or 6 rows of two vectors in the 16 registers of AVX2.
inline constexpr int64_t kTileRows = kVectorBytes == 64 ? 8 : 6;
template <class T>
inline constexpr int64_t kTileColumns = 2 * kLanes<T>;

// tile_rows() and tile_columns() return n rounded up to a multiple of kTileRows or kTileColumns.
constexpr int64_t tile_rows(int64_t n) {
  return (n + kTileRows - 1) / kTileRows * kTileRows;
}
template <class T>
constexpr int64_t tile_columns(int64_t n) {
  return (n + kTileColumns<T> - 1) / kTileColumns<T> * kTileColumns<T>;
}

// Returns the depth of a packed operand with elements of type S. This is `depth`, which is rounded up to an
// even number if S is BFloat16.
template <class S>
constexpr int64_t packed_depth(int64_t depth) {
  return std::is_same_v<S, BFloat16> ? (depth + 1) / 2 * 2 : depth;
}

// The layout of the left operand. With Left::rows, element (row, k) is a[row * stride + k]. With
// Left::columns, it is a[k * stride + row], or a[(k - k % 2) * stride + 2 * row + k % 2] for BFloat16.
enum class Left { rows, columns };

// Computes c = a b, or c += a b if kAdd is true, for one tile. a is (kRows, depth), b is a panel (depth,
// kTileColumns), and c has the row stride c_stride.
template <Left kLeft, bool kAdd, int kRows = static_cast<int>(kTileRows), class T>
void tile_product(const T* a, int64_t a_stride, const T* b, int64_t depth, T* c, int64_t c_stride) {
  Vector<T> tile[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(c + r * c_stride, 1);
    __builtin_prefetch(c + r * c_stride + kTileColumns<T> - 1, 1);
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) tile[r][j] = kAdd ? load(c + r * c_stride + j * kLanes<T>) : Vector<T>{};
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; ++k) {
    Vector<T> right[2];
    for (int j = 0; j < 2; ++j) {
      right[j] = load(b + k * kTileColumns<T> + j * kLanes<T>);
      keep_in_register(right[j]);
    }
    for (int r = 0; r < kRows; ++r) {
      const T left = kLeft == Left::rows ? a[r * a_stride + k] : a[k * a_stride + r];
      for (int j = 0; j < 2; ++j) tile[r][j] += left * right[j];
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) store(c + r * c_stride + j * kLanes<T>, tile[r][j]);
}

// Computes c = a b, or c += a b if kAdd is true, for one tile with BFloat16 operands. `depth` is even.
// Element (k, column) of the panel is b[(k - k % 2) * kTileColumns + 2 * column + k % 2].
template <Left kLeft, bool kAdd, int kRows = static_cast<int>(kTileRows)>
void tile_product(const BFloat16* a, int64_t a_stride, const BFloat16* b, int64_t depth, float* c,
                  int64_t c_stride) {
  constexpr int64_t kWidth = kTileColumns<float>, kVector = kLanes<float>;
  Vector<float> tile[kRows][2];
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(c + r * c_stride, 1);
    __builtin_prefetch(c + r * c_stride + kWidth - 1, 1);
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) tile[r][j] = kAdd ? load(c + r * c_stride + j * kVector) : Vector<float>{};
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k += 2) {
    const Pairs right[2] = {load_pairs(b + k * kWidth), load_pairs(b + k * kWidth + 2 * kVector)};
    for (int r = 0; r < kRows; ++r) {
      const Pairs left =
          broadcast_pair(kLeft == Left::rows ? a + r * a_stride + k : a + k * a_stride + 2 * r);
      for (int j = 0; j < 2; ++j) tile[r][j] = add_dot_products(tile[r][j], left, right[j]);
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < 2; ++j) store(c + r * c_stride + j * kVector, tile[r][j]);
}

// Packs the columns of x: element (i, j) of x (count, dim), multiplied by `scale`, is stored in row i of
// panel j / kTileColumns. Panels have `capacity` rows. Columns beyond dim are zero. BFloat16 elements are
// packed as float.
template <class S, class T>
void pack_columns(const S* x, int64_t stride, int64_t count, int64_t dim, T scale, int64_t capacity,
                  T* panels) {
  constexpr int64_t kWidth = kTileColumns<T>;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < dim; j += kWidth) {
      T* const out = panels + j * capacity + i * kWidth;
      const S* const row = x + i * stride + j;
      for (int64_t l = 0; l < kWidth; l += kLanes<T>)
        store(out + l, dim - j > l ? scale * load_first(row + l, dim - j - l) : Vector<T>{});
    }
}

// Packs the rows of x for a product with its transpose: element (i, j) of x (count, dim) is stored in panel
// i / kTileColumns, row j. Rows beyond count are zero. BFloat16 elements are packed as float.
template <class S, class T>
void pack_rows(const S* x, int64_t stride, int64_t count, int64_t dim, T* panels) {
  constexpr int64_t kWidth = kTileColumns<T>;
  constexpr int64_t kBlock = kLanes<T>;
  for (int64_t i = 0; i < count; i += kWidth, panels += kWidth * dim) {
    int64_t j = 0;
    if (count - i >= kWidth)
      for (; j + kBlock <= dim; j += kBlock)
        for (int64_t half = 0; half < kWidth; half += kBlock) {
          Vector<T> block[kBlock];
          for (int64_t l = 0; l < kBlock; ++l) block[l] = load(x + (i + half + l) * stride + j);
          transpose(block);
          for (int64_t l = 0; l < kBlock; ++l) store(panels + (j + l) * kWidth + half, block[l]);
        }
    for (; j < dim; ++j)
      for (int64_t l = 0; l < kWidth; ++l)
        panels[j * kWidth + l] = i + l < count ? convert_element<T>(x[(i + l) * stride + j]) : T{0};
  }
}

// Packs the columns of x (count, dim) in panels of `capacity` rows, without conversion to float. Two elements
// of a column in adjacent rows are stored as a pair. `capacity` must be even.
inline void pack_columns(const BFloat16* x, int64_t stride, int64_t count, int64_t dim, int64_t capacity,
                         BFloat16* panels) {
  constexpr int64_t kWidth = kTileColumns<float>, kVector = kLanes<float>;
  for (int64_t i = 0; i < count; i += 2)
    for (int64_t j = 0; j < dim; j += kWidth) {
      BFloat16* const out = panels + j * capacity + i * kWidth;
      const BFloat16 *const even = x + i * stride + j, *const odd = even + stride;
      if (i + 1 < count && dim - j >= kWidth) {
        for (int64_t l = 0; l < kWidth; l += kVector)
          store_pairs(out + 2 * l, interleave_rows(even + l, odd + l));
        continue;
      }
      for (int64_t l = 0; l < kWidth; ++l) {
        out[2 * l] = j + l < dim ? even[l] : BFloat16{};
        out[2 * l + 1] = j + l < dim && i + 1 < count ? odd[l] : BFloat16{};
      }
    }
}

// Packs the rows of x (count, dim) for a product with its transpose, without conversion to float. Two
// adjacent elements of a row are stored as a pair. Each panel has packed_depth(dim) rows.
inline void pack_rows(const BFloat16* x, int64_t stride, int64_t count, int64_t dim, BFloat16* panels) {
  constexpr int64_t kWidth = kTileColumns<float>, kBlock = kLanes<float>;
  const int64_t depth = packed_depth<BFloat16>(dim);
  for (int64_t i = 0; i < count; i += kWidth, panels += kWidth * depth) {
    int64_t j = 0;
    if (count - i >= kWidth)
      for (; j + 2 * kBlock <= dim; j += 2 * kBlock)
        for (int64_t half = 0; half < kWidth; half += kBlock) {
          Vector<float> block[kBlock];  // pairs of BFloat16, as bit patterns
          for (int64_t l = 0; l < kBlock; ++l)
            block[l] = std::bit_cast<Vector<float>>(load_pairs(x + (i + half + l) * stride + j));
          transpose(block);
          for (int64_t l = 0; l < kBlock; ++l)
            store_pairs(panels + (j + 2 * l) * kWidth + 2 * half, std::bit_cast<Pairs>(block[l]));
        }
    for (; j < depth; ++j)
      for (int64_t l = 0; l < kWidth; ++l)
        panels[(j - j % 2) * kWidth + 2 * l + j % 2] =
            i + l < count && j < dim ? x[(i + l) * stride + j] : BFloat16{};
  }
}

}  // namespace tapeformer::cpu
