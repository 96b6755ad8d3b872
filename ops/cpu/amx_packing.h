// Conversion of matrices to the tiles of amx_tiles.h. The type parameter E is the type of the elements:
// BFloat16 or float.
#pragma once

#include <algorithm>
#include <array>

#include "core/cpu/bfloat16_pairs.h"
#include "ops/cpu/amx_tiles.h"

namespace tapeformer::cpu::amx {

// The vectors of the parts of elements. Each lane holds the bits of a bfloat16 number in its upper half, and
// zeros in its lower half.
template <class E>
using PartVectors = std::array<Pairs, kParts<E>>;

// Loads and splits kLanes<float> adjacent elements. The first two parts of a float are rounded to nearest,
// and ties are rounded away from zero. The third part is the rest, which has at most 8 significant bits.
// Rounding can turn the first parts of a NaN into zeros, and then the third part is NaN.
template <class E>
[[gnu::always_inline]] inline PartVectors<E> load_parts(const E* source) {
  if constexpr (kParts<E> == 1) {
    return {std::bit_cast<Pairs>(load(source))};
  } else {
    const auto round = [](Vector<float> x) __attribute__((always_inline)) {
      return (std::bit_cast<Pairs>(x) + 0x8000) & 0xFFFF0000;
    };
    const Vector<float> x = load(source);
    const Pairs first = round(x);
    const Vector<float> rest = x - std::bit_cast<Vector<float>>(first);
    const Pairs second = round(rest);
    return {first, second, std::bit_cast<Pairs>(rest - std::bit_cast<Vector<float>>(second)) & 0xFFFF0000};
  }
}

// Returns the lower halves (kHalf = 0) or the upper halves (kHalf = 1) of the lanes of `low`, followed by the
// lower or upper halves of the lanes of `high`.
template <int kHalf>
[[gnu::always_inline]] inline Pairs join_halves(Pairs low, Pairs high) {
  return [&]<int... kElement>(std::integer_sequence<int, kElement...>) __attribute__((always_inline)) {
    return std::bit_cast<Pairs>(__builtin_shufflevector(std::bit_cast<cpu::detail::PairElements>(low),
                                                        std::bit_cast<cpu::detail::PairElements>(high),
                                                        (2 * kElement + kHalf)...));
  }
  (std::make_integer_sequence<int, static_cast<int>(2 * kLanes<float>)>());
}

// Splits `count` elements, at most kTileDepth, and appends zeros up to kTileDepth elements. Part p of the
// elements is written to `parts + p * part_stride`.
inline void split_row(const float* source, int64_t count, BFloat16* parts, int64_t part_stride) {
  alignas(64) float padded[kTileDepth];
  if (count < kTileDepth) {
    std::fill(std::copy_n(source, count, padded), std::end(padded), 0.0f);
    source = padded;
  }
  constexpr int64_t kLength = kLanes<float>;
  for (int64_t i = 0; i < kTileDepth; i += 2 * kLength) {
    const PartVectors<float> low = load_parts(source + i), high = load_parts(source + i + kLength);
    for (size_t part = 0; part < low.size(); ++part)
      store_pairs(parts + static_cast<int64_t>(part) * part_stride + i,
                  join_halves<1>(low[part], high[part]));
  }
}

// Transposes a matrix of 16 x 16 pairs of bfloat16 elements. `stride` is the row stride of `from` in
// elements.
inline void transpose_pairs(const BFloat16* from, int64_t stride, BFloat16* to) {
  constexpr int64_t kLength = kLanes<float>;
  for (int64_t i = 0; i < kTileSide; i += kLength)
    for (int64_t j = 0; j < kTileSide; j += kLength) {
      Vector<float> block[kLength];  // each float holds the bits of two bfloat16 numbers
      for (int64_t l = 0; l < kLength; ++l)
        block[l] = std::bit_cast<Vector<float>>(load_pairs(from + (i + l) * stride + 2 * j));
      transpose(block);
      for (int64_t l = 0; l < kLength; ++l)
        store_pairs(to + (j + l) * kTileDepth + 2 * i, std::bit_cast<Pairs>(block[l]));
    }
}

// Packs 32 rows of 16 columns of x into tiles of the right operand, one tile for each part. Row p of a tile
// holds, for each column, the pair of the elements in rows 2p and 2p + 1 of x.
template <class E>
void pack_tile(const E* x, int64_t stride, BFloat16* tile, int64_t part_stride = kPartStride) {
  for (int64_t p = 0; p < kTileSide; ++p, x += 2 * stride)
    for (int64_t j = 0; j < kTileSide; j += kLanes<float>) {
      const PartVectors<E> even = load_parts(x + j), odd = load_parts(x + stride + j);
      for (int64_t part = 0; part < kParts<E>; ++part)
        store_pairs(tile + part * part_stride + p * kTileDepth + 2 * j, even[part] >> 16 | odd[part]);
    }
}

// A block of a matrix: kTileDepth rows of kPanelColumns columns.
template <class E>
struct Block {
  E values[kTileDepth * kPanelColumns];
};

// Packs the contiguous matrix x (rows, width), padded with zeros to multiples of 32, into tiles of the right
// operand if kLeft is false. If kLeft is true, packs the transposed matrix into tiles of the left operand. If
// c and r are multiples of 32, the tiles for the columns [c, c + 32) and the rows of x from r on begin at
// tiles + kParts<E> * (c * padded_rows + 32 * r), where padded_rows is `rows`, rounded up to a multiple
// of 32.
template <bool kLeft, class E>
void pack_rows(int64_t rows, int64_t width, const E* x, BFloat16* tiles) {
  alignas(64) Block<E> padded;
  alignas(64) BFloat16 pairs[kParts<E> * kTileElements];
  for (int64_t column = 0; column < width; column += kPanelColumns)
    for (int64_t row = 0; row < rows; row += kTileDepth, tiles += kParts<E> * kPartStride) {
      const E* block = x + row * width + column;
      int64_t stride = width;
      const int64_t height = std::min(kTileDepth, rows - row),
                    columns = std::min(kPanelColumns, width - column);
      if (height < kTileDepth || columns < kPanelColumns) {
        padded = {};
        for (int64_t r = 0; r < height; ++r)
          std::copy_n(block + r * stride, columns, padded.values + r * kPanelColumns);
        block = padded.values;
        stride = kPanelColumns;
      }
      for (int64_t half = 0; half < 2; ++half) {
        const E* const from = block + half * kTileSide;
        BFloat16* const to = tiles + half * kTileElements;
        if (!kLeft) {
          pack_tile(from, stride, to);
          continue;
        }
        pack_tile(from, stride, pairs, kTileElements);
        for (int64_t part = 0; part < kParts<E>; ++part)
          transpose_pairs(pairs + part * kTileElements, kTileDepth, to + part * kPartStride);
      }
    }
}

}  // namespace tapeformer::cpu::amx
