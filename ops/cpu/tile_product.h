// Products of small matrices, computed one tile of the result at a time. A tile of the result stays in
// registers during the sum over the depth. The right operand is packed in panels, which are matrices with
// kTileColumns columns.
//
// In BFloat16 operands, two elements that are adjacent along the depth are stored as a pair
// (core/cpu/bfloat16_pairs.h). An odd depth is padded with zeros to an even depth. Sums have type float.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "core/cpu/bfloat16_pairs.h"
#include "core/cpu/vector.h"

namespace tapeformer::cpu {

// Numbers of rows and columns of a tile. A tile stays in registers. With AVX-512, 8 rows of two vectors use
// 16 of 32 registers. With AVX2, 6 rows of two vectors use 12 of 16 registers.
inline constexpr int64_t kTileRows = kVectorBytes == 64 ? 8 : 6;
template <class T>
inline constexpr int64_t kTileColumns = 2 * kLanes<T>;

// Returns n rounded up to a multiple of kTileRows or kTileColumns.
constexpr int64_t round_up_to_tile_rows(int64_t n) {
  return (n + kTileRows - 1) / kTileRows * kTileRows;
}
template <class T>
constexpr int64_t round_up_to_tile_columns(int64_t n) {
  return (n + kTileColumns<T> - 1) / kTileColumns<T> * kTileColumns<T>;
}

// Returns `depth`, rounded up to an even number if S is BFloat16.
template <class S>
constexpr int64_t compute_packed_depth(int64_t depth) {
  return std::is_same_v<S, BFloat16> ? (depth + 1) / 2 * 2 : depth;
}

// The layout of the left operand a of compute_tile_product():
//   rows:    element (row, k) is a[row * a_stride + k]
//   columns: element (row, k) is a[k * a_stride + row]
// For BFloat16, `columns` stores the elements (row, k) and (row, k + 1) with even k as a pair at
// a[k * a_stride + 2 * row].
enum class Left { rows, columns };

// Computes the tile c = a b with the shape (kRows, kPanels * kTileColumns), or c += a b if kAccumulate is
// true. `a` is (kRows, depth) in the layout kLeft, and b consists of panels (depth, kTileColumns), which are
// panel_stride elements apart. c_stride is the row stride of c. Each element of c is one sum in the order of
// the depth, so its rounding does not depend on kRows and kPanels.
//
// If T is float, W is float or BFloat16, which is converted to float. If T and W are BFloat16, `depth` must
// be even, and a panel stores the elements (k, column) and (k + 1, column) with even k as a pair at
// b[k * kTileColumns + 2 * column].
template <Left kLeft, bool kAccumulate, int kRows = static_cast<int>(kTileRows), int kPanels = 1, class T,
          class W>
void compute_tile_product(const T* a, int64_t a_stride, const W* b, int64_t depth, Compute<T>* c,
                          int64_t c_stride, int64_t panel_stride = 0) {
  using Sum = Compute<T>;
  constexpr bool kHasPairs = std::is_same_v<T, BFloat16>;
  constexpr int kVectors = 2 * kPanels;
  constexpr int64_t kStep = kHasPairs ? 2 : 1, kVectorElements = kLanes<Sum>;
  Vector<Sum> tile[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    __builtin_prefetch(c + r * c_stride, 1);
    __builtin_prefetch(c + r * c_stride + kPanels * kTileColumns<Sum> - 1, 1);
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j)
      tile[r][j] = kAccumulate ? load(c + r * c_stride + j * kVectorElements) : Vector<Sum>{};
#pragma GCC unroll 4
  for (int64_t k = 0; k < depth; k += kStep) {
    std::conditional_t<kHasPairs, Pairs, Vector<Sum>> right[kVectors];
    for (int j = 0; j < kVectors; ++j) {
      const W* const source =
          b + j / 2 * panel_stride + k * kTileColumns<Sum> + j % 2 * kStep * kVectorElements;
      if constexpr (kHasPairs) {
        right[j] = load_pairs(source);
      } else {
        right[j] = load(source);
        keep_in_register(right[j]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      const T* const source = kLeft == Left::rows ? a + r * a_stride + k : a + k * a_stride + kStep * r;
      if constexpr (kHasPairs) {
        const Pairs left = broadcast_pair(source);
        for (int j = 0; j < kVectors; ++j) tile[r][j] = add_dot_products(tile[r][j], left, right[j]);
      } else {
        const T left = *source;
        for (int j = 0; j < kVectors; ++j) tile[r][j] += left * right[j];
      }
    }
  }
  for (int r = 0; r < kRows; ++r)
    for (int j = 0; j < kVectors; ++j) store(c + r * c_stride + j * kVectorElements, tile[r][j]);
}

// Packs x (count, dim), multiplied by `scale`, in panels of `capacity` rows and kTileColumns columns. Only
// the first `count` rows of each panel are written. Columns beyond `dim` are set to 0. BFloat16 elements are
// converted to float.
template <class S, class T>
void pack_columns(const S* x, int64_t stride, int64_t count, int64_t dim, T scale, int64_t capacity,
                  T* panels) {
  constexpr int64_t kPanelColumns = kTileColumns<T>;
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < dim; j += kPanelColumns) {
      T* const out = panels + j * capacity + i * kPanelColumns;
      const S* const row = x + i * stride + j;
      for (int64_t l = 0; l < kPanelColumns; l += kLanes<T>)
        store(out + l, dim - j > l ? scale * load_first(row + l, dim - j - l) : Vector<T>{});
    }
}

// Sets the rows [0, count) of a square block to load_row(i), and the others to zero.
template <class V, size_t kRows, class F>
[[gnu::always_inline]] inline void load_block(V (&block)[kRows], int64_t count, F load_row) {
  constexpr auto kAll = static_cast<int64_t>(kRows);
  if (count >= kAll)
    for (int64_t i = 0; i < kAll; ++i) block[i] = load_row(i);
  else
    for (int64_t i = 0; i < kAll; ++i) block[i] = i < count ? load_row(i) : V{};
}

// Packs the transpose of x (count, dim) in panels of `dim` rows and kTileColumns columns. Columns beyond
// `count` are zero. BFloat16 elements are converted to float.
template <class S, class T>
void pack_rows(const S* x, int64_t stride, int64_t count, int64_t dim, T* panels) {
  constexpr int64_t kPanelColumns = kTileColumns<T>;
  constexpr int64_t kVectorElements = kLanes<T>;
  for (int64_t i = 0; i < count; i += kPanelColumns, panels += kPanelColumns * dim) {
    int64_t j = 0;
    for (; j + kVectorElements <= dim; j += kVectorElements)
      for (int64_t half = 0; half < kPanelColumns; half += kVectorElements) {
        Vector<T> block[kVectorElements];
        load_block(
            block, count - i - half, [&](int64_t l) __attribute__((always_inline)) {
              return load(x + (i + half + l) * stride + j);
            });
        transpose(block);
        for (int64_t l = 0; l < kVectorElements; ++l)
          store(panels + (j + l) * kPanelColumns + half, block[l]);
      }
    for (; j < dim; ++j)
      for (int64_t l = 0; l < kPanelColumns; ++l)
        panels[j * kPanelColumns + l] = i + l < count ? convert_element<T>(x[(i + l) * stride + j]) : T{0};
  }
}

// Packs x (count, dim) in panels of `capacity` rows, without conversion to float. `capacity` must be even.
// Elements (i, j) and (i + 1, j) with even i are stored as a pair.
inline void pack_columns(const BFloat16* x, int64_t stride, int64_t count, int64_t dim, int64_t capacity,
                         BFloat16* panels) {
  constexpr int64_t kPanelColumns = kTileColumns<float>, kVectorElements = kLanes<float>;
  for (int64_t i = 0; i < count; i += 2)
    for (int64_t j = 0; j < dim; j += kPanelColumns) {
      BFloat16* const out = panels + j * capacity + i * kPanelColumns;
      const BFloat16 *const even = x + i * stride + j, *const odd = even + stride;
      if (i + 1 < count && dim - j >= kPanelColumns) {
        for (int64_t l = 0; l < kPanelColumns; l += kVectorElements)
          store_pairs(out + 2 * l, interleave_rows(even + l, odd + l));
        continue;
      }
      for (int64_t l = 0; l < kPanelColumns; ++l) {
        out[2 * l] = j + l < dim ? even[l] : BFloat16{};
        out[2 * l + 1] = j + l < dim && i + 1 < count ? odd[l] : BFloat16{};
      }
    }
}

// Packs the transpose of x (count, dim) in panels of `depth` rows, without conversion to float. `depth` is
// even and at least `dim`; rows from `dim` on are zero. Elements (i, j) and (i, j + 1) with even j are stored
// as a pair.
inline void pack_rows(const BFloat16* x, int64_t stride, int64_t count, int64_t dim, int64_t depth,
                      BFloat16* panels) {
  constexpr int64_t kPanelColumns = kTileColumns<float>, kVectorElements = kLanes<float>;
  for (int64_t i = 0; i < count; i += kPanelColumns, panels += kPanelColumns * depth) {
    int64_t j = 0;
    for (; j + 2 * kVectorElements <= dim; j += 2 * kVectorElements)
      for (int64_t half = 0; half < kPanelColumns; half += kVectorElements) {
        Vector<float> block[kVectorElements];  // one BFloat16 pair per lane
        load_block(
            block, count - i - half, [&](int64_t l) __attribute__((always_inline)) {
              return std::bit_cast<Vector<float>>(load_pairs(x + (i + half + l) * stride + j));
            });
        transpose(block);
        for (int64_t l = 0; l < kVectorElements; ++l)
          store_pairs(panels + (j + 2 * l) * kPanelColumns + 2 * half, std::bit_cast<Pairs>(block[l]));
      }
    for (; j < depth; ++j)
      for (int64_t l = 0; l < kPanelColumns; ++l)
        panels[(j - j % 2) * kPanelColumns + 2 * l + j % 2] =
            i + l < count && j < dim ? x[(i + l) * stride + j] : BFloat16{};
  }
}

}  // namespace tapeformer::cpu
