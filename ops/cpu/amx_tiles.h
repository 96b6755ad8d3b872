// Blocks of matrix products with the tile instructions of AMX, which multiply bfloat16 elements and add the
// products in float32. Subnormal operands and results become zero. All functions except is_available()
// require that is_available() is true.
//
// The type parameter E of a function is the type of the elements of both operands: BFloat16 or float. A float
// is split into a sum of three bfloat16 numbers, its parts: x = x0 + x1 + x2, where |x1| is at most 2^-8 |x|
// and |x2| is at most 2^-16 |x|. The product of two floats x and y is computed as the sum of six products of
// parts (Henry, Tang and Heinecke 2019, "Leveraging the bfloat16 Artificial Intelligence Datatype For
// Higher-Precision Computations"):
//   x0 y0 + x0 y1 + x1 y0 + x0 y2 + x1 y1 + x2 y0.
// If |x|, |y| and |x y| are at least 2^-100, the error of the product is less than 2^-22 |x y|. For smaller
// numbers, the relative error is larger, because tile instructions replace subnormal parts and subnormal
// products of parts by zero. If |x y| exceeds 2^128 (1 - 2^-7), the result can be infinite. If an element is
// NaN, or has an absolute value of at least 2^128 - 2^119, all results that depend on this element are NaN.
//
// The rounding of an element of a block does not depend on the number of rows or columns of the block.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/dtype.h"

namespace tapeformer::cpu::amx {

#if defined(__x86_64__)
inline constexpr bool kIsBuilt = true;
#else
inline constexpr bool kIsBuilt = false;
#endif

inline constexpr int64_t kTileDepth = 32;  // rows of b in one tile: the depth of a product of two tiles
inline constexpr int64_t kTileSide = 16;   // rows of a tile register
inline constexpr int64_t kTileElements = kTileSide * kTileDepth;
inline constexpr int64_t kPanelColumns = 32;  // columns of a panel, which is two tiles wide

// Number of bfloat16 numbers that represent one element.
template <class E>
inline constexpr int64_t kParts = std::is_same_v<E, float> ? 3 : 1;
// Distance between the tiles of two consecutive parts, in BFloat16 elements. The two tiles of a part are
// adjacent.
inline constexpr int64_t kPartStride = 2 * kTileElements;

// Returns whether the processor has AMX for bfloat16 and the operating system allows this process to use it.
// The first call of is_available() requests this permission.
bool is_available();

// The operands of a block of at most 32 x 32 results: a (32, depth) and b (depth, 32). An operand consists of
// two sequences of tiles. The tiles of a sequence follow each other along the depth. A tile of the left
// operand has kTileSide rows with kTileDepth elements. A tile of the right operand has kTileSide rows with
// kTileSide pairs; a pair contains the elements of two adjacent rows of b. If E is float, the tiles of the
// second and third parts begin kPartStride and 2 * kPartStride after the tile of the first parts. Strides are
// numbers of BFloat16 elements.
struct LeftOperand {
  const BFloat16 *upper, *lower;  // the first 16 rows of a, and the next 16 rows
  int64_t row_stride;             // distance between rows of a tile
  int64_t tile_stride;            // distance between tiles of a sequence
};
struct RightOperand {
  const BFloat16 *first, *second;  // the first 16 columns of b, and the next 16 columns
  int64_t row_stride, tile_stride;
};

// Returns the left operand that consists of 32 rows of a row-major matrix of BFloat16 elements.
inline LeftOperand make_left_rows(const BFloat16* a, int64_t row_stride) {
  return {a, a + kTileSide * row_stride, row_stride, kTileDepth};
}
// Returns the right operand for 32 columns of BFloat16 elements that are stored as pairs of rows. The element
// in row k and column j is pairs[k / 2 * row_stride + 2 * j + k % 2].
inline RightOperand make_right_pairs(const BFloat16* pairs, int64_t row_stride) {
  return {pairs, pairs + 2 * kTileSide, row_stride, kTileSide * row_stride};
}
// make_packed_left() and make_packed_right() return the operand whose tiles are stored one after another: for
// each group of kTileDepth elements of the depth, two tiles for each part (amx_packing.h).
template <class E>
LeftOperand make_packed_left(const BFloat16* tiles) {
  return {tiles, tiles + kTileElements, kTileDepth, kParts<E> * kPartStride};
}
template <class E>
RightOperand make_packed_right(const BFloat16* tiles) {
  return {tiles, tiles + kTileElements, kTileDepth, kParts<E> * kPartStride};
}

// While a TileRegisters object exists, the tile registers of the thread that created the object are
// configured for blocks with `rows` rows, from 1 to 32. A thread must not create a second TileRegisters
// object while the first one exists. The functions below require a TileRegisters object in the calling
// thread.
class TileRegisters {
 public:
  explicit TileRegisters(int64_t rows = kTileDepth) { configure(rows); }
  ~TileRegisters();
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

  void configure(int64_t rows);
};

// Computes the matrix product c = a b, or c += a b if `add` is true, for c with 32 columns and the number of
// rows of the TileRegisters object. If E is float, `add` requires 32 rows. `depth` is a multiple of
// kTileDepth, at least kTileDepth. `stride` is the row stride of c in elements.
template <class E>
void multiply_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add, float* c,
                    int64_t stride);
// Computes the same as multiply_block(), but reads and writes only the first `rows` rows and `columns`
// columns of c.
template <class E>
void multiply_incomplete_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add,
                               int64_t rows, int64_t columns, float* c, int64_t stride);
// Computes the matrix product c = a b for c with 64 columns and at most 16 rows. `b` contains the first 32
// columns of the right operand and `next_b` the other 32 columns, with equal strides. `depth` is a multiple
// of kTileDepth, at least kTileDepth. The function does not read a.lower.
template <class E>
void multiply_flat_block(const LeftOperand& a, const RightOperand& b, const RightOperand& next_b,
                         int64_t depth, float* c, int64_t stride);

}  // namespace tapeformer::cpu::amx
