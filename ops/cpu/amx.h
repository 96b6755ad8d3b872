// Products of bfloat16 matrices with the tile instructions of AMX. All functions run in the calling thread.
// Sums are float32. Subnormal operands and results become zero. All functions except is_available() require
// that is_available() is true.
//
// A packed matrix consists of panels of kPanelColumns columns. In a panel, each group of kTileDepth rows is
// stored as two tiles with 16 columns each. The matrix is padded with zeros to whole tiles.
#pragma once

#include <cstdint>

#include "core/dtype.h"

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

// Returns whether the processor has AMX for bfloat16 and the operating system allows this process to use it.
// The first call requests permission from the operating system.
bool is_available();

// Returns the size of a packed matrix in bytes.
int64_t compute_packed_bytes(int64_t depth, int64_t columns);
// Packs columns [begin, end) of the matrix b into `packed`, which is the start of the packed matrix. b is
// stored as (depth, columns), or as (columns, depth) if `transposed` is true. The elements of b are rounded
// to bfloat16. `begin` is a multiple of kPanelColumns, and `end` is a multiple of kPanelColumns or `columns`.
void pack(int64_t depth, int64_t columns, const float* b, bool transposed, int64_t begin, int64_t end,
          BFloat16* packed);
// Computes out (rows, columns) = a (rows, depth) b, where `packed` is the packed matrix b. `out_stride` is
// the row stride of `out` in elements.
void multiply(int64_t rows, int64_t depth, int64_t columns, const BFloat16* a, const BFloat16* packed,
              float* out, int64_t out_stride);

// Computes out (m, n) = aᵀ b or, if `add` is true, out += aᵀ b, for contiguous a (rows, m), b (rows, n) and
// out. `rows` is at least 1.
void multiply_transposed(int64_t rows, int64_t m, int64_t n, const BFloat16* a, const BFloat16* b, bool add,
                         float* out);

// The operands of multiply_square(): a (32, depth) and b (depth, 32). An operand consists of two sequences of
// tiles. The tiles of a sequence follow each other along the depth. A tile of the left operand has kTileSide
// rows with kTileDepth elements. A tile of the right operand has kTileSide rows with kTileSide pairs; a pair
// contains the elements of two adjacent rows of b. Strides are numbers of elements.
struct LeftOperand {
  const BFloat16 *upper, *lower;  // the first 16 rows of a, and the next 16 rows
  int64_t row_stride;             // distance between rows of a tile
  int64_t tile_stride;            // distance between tiles of a sequence
};
struct RightOperand {
  const BFloat16 *first, *second;  // the first 16 columns of b, and the next 16 columns
  int64_t row_stride, tile_stride;
};

// Returns the left operand that consists of 32 rows of a row-major matrix.
inline LeftOperand make_left_rows(const BFloat16* a, int64_t row_stride) {
  return {a, a + kTileSide * row_stride, row_stride, kTileDepth};
}
// Returns the left operand in a matrix that pack_transposed_left() has packed.
inline LeftOperand make_packed_left(const BFloat16* tiles) {
  return {tiles, tiles + kTileElements, kTileDepth, 2 * kTileElements};
}
// Returns the right operand that consists of 32 columns of b. Element (k, column) of b is pairs[k / 2 *
// row_stride + 2 * column + k % 2].
inline RightOperand make_right_pairs(const BFloat16* pairs, int64_t row_stride) {
  return {pairs, pairs + 2 * kTileSide, row_stride, kTileSide * row_stride};
}

// Packs xᵀ (width, rows) as left operands of multiply_square(), for a contiguous x (rows, width). Both sizes
// are multiples of 32. If c and r are multiples of 32, make_packed_left(tiles + c * rows + 32 * r) is the
// operand for the columns [c, c + 32) of x and the rows of x from r on.
void pack_transposed_left(int64_t rows, int64_t width, const BFloat16* x, BFloat16* tiles);

// While a SquareTiles object exists, the tile registers of the thread that created the object are configured
// for multiply_square(). While the object exists, the thread must not call multiply() or
// multiply_transposed(), and must not create a second SquareTiles object.
class SquareTiles {
 public:
  SquareTiles();
  ~SquareTiles();
  SquareTiles(const SquareTiles&) = delete;
  SquareTiles& operator=(const SquareTiles&) = delete;
};

// Computes the matrix product c = a b for c (32, 32), or c += a b if `add` is true. `depth` is a multiple of
// kTileDepth, at least kTileDepth. `stride` is the row stride of c in elements. Requires a SquareTiles object
// in the calling thread.
void multiply_square(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add, float* c,
                     int64_t stride);

}  // namespace tapeformer::cpu::amx
