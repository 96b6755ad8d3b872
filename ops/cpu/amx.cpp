#include "ops/cpu/amx.h"

#include <algorithm>

#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "ops/cpu/amx_packing.h"
#include "ops/cpu/growing_memory.h"

namespace tapeformer::cpu::amx {
namespace {

constexpr int64_t kMaxPanelDepth = 512;  // maximum number of rows of a part of a panel in multiply_panels()
constexpr int64_t kMaxDepth = 512;       // maximum number of rows that multiply_transposed() packs at a time
// Maximum size of a packed matrix that multiply_panels() keeps in the L2 cache, in bfloat16 numbers. The
// value corresponds to 1 MiB, which is half of the L2 cache of processors with AMX.
constexpr int64_t kMaxCachedElements = 1 << 19;

thread_local GrowingMemory left_memory, right_memory;

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Returns the maximum number of rows per call of multiply_panels(), from 32 to 256. The parts of float rows
// have at most 512 KiB, unless 32 rows have more.
template <class E>
int64_t choose_block_rows(int64_t depth) {
  constexpr int64_t kMaxRows = 256;
  if constexpr (kParts<E> == 1) return kMaxRows;
  const int64_t rows = kMaxCachedElements / 2 / (kParts<E> * depth) / kTileDepth * kTileDepth;
  return std::clamp(rows, kTileDepth, kMaxRows);
}

// Rounds `count` elements, at most kTileDepth, or splits them if E is float. Part p is written to `parts + p
// * part_stride`.
template <class E>
void convert_row(const float* row, int64_t count, BFloat16* parts, int64_t part_stride) {
  if constexpr (kParts<E> == 1)
    narrow(row, count, parts);
  else
    split_row(row, count, parts, part_stride);
}

// A product of a (rows, depth) and b (depth, columns). The result c is (rows, columns). In panel p of b, the
// rows that the product uses begin at panels + p * panel_stride. `depth` is a multiple of kTileDepth. Strides
// are numbers of elements.
struct PanelProduct {
  int64_t rows, depth, columns;
  LeftOperand a;     // the first 32 rows
  int64_t a_stride;  // the tiles of row r + 32 begin 32 * a_stride elements after the tiles of row r
  const BFloat16* panels;
  int64_t panel_stride;
  float* c;
  int64_t c_stride;
};

LeftOperand make_left_block(const PanelProduct& p, int64_t row) {
  LeftOperand left = p.a;
  left.upper += row * p.a_stride;
  left.lower += row * p.a_stride;
  return left;
}

// Computes the rows [row, min(row + 32, rows)) and the columns [column, min(column + 32, columns)) of a
// product. If `add` is true, adds the product to c.
template <class E>
void multiply_panel(const PanelProduct& p, int64_t row, int64_t column, bool add) {
  const LeftOperand left = make_left_block(p, row);
  const RightOperand right = make_packed_right<E>(p.panels + column / kPanelColumns * p.panel_stride);
  const int64_t count = std::min(kPanelColumns, p.columns - column);
  float* const c = p.c + row * p.c_stride + column;
  if (count == kPanelColumns) return multiply_block<E>(left, right, p.depth, add, c, p.c_stride);
  multiply_incomplete_block<E>(left, right, p.depth, add, std::min(kTileDepth, p.rows - row), count, c,
                               p.c_stride);
}

// Computes a product with at most 16 rows.
template <class E>
void multiply_few_rows(const PanelProduct& p) {
  alignas(64) float sums[kTileSide * 2 * kPanelColumns];
  const LeftOperand left = make_left_block(p, 0);
  constexpr int64_t kWidth = 2 * kPanelColumns;
  for (int64_t column = 0; column < p.columns; column += kWidth) {
    const int64_t count = std::min(kWidth, p.columns - column);
    const BFloat16* const panel = p.panels + column / kPanelColumns * p.panel_stride;
    const RightOperand right = make_packed_right<E>(panel),
                       next_right =
                           make_packed_right<E>(count > kPanelColumns ? panel + p.panel_stride : panel);
    if (count == kWidth) {
      multiply_flat_block<E>(left, right, next_right, p.depth, p.c + column, p.c_stride);
      continue;
    }
    multiply_flat_block<E>(left, right, next_right, p.depth, sums, kWidth);
    for (int64_t row = 0; row < p.rows; ++row)
      std::copy_n(sums + row * kWidth, count, p.c + row * p.c_stride + column);
  }
}

// Computes a product. product.rows is less than 32 or a multiple of 32.
//
// If the packed matrix b has at most kMaxCachedElements bfloat16 numbers, b stays in the L2 cache and is read
// once for each block of 32 rows of `a`. If b is larger, each panel is read once for all rows of the product.
// Larger panels of BFloat16 elements are divided into parts of at most kMaxPanelDepth rows. Panels of floats
// are not divided, because the sum of each part would be rounded when it is added to c.
template <class E>
void multiply_panels(const PanelProduct& product) {
  const bool is_cached = kParts<E> * product.depth * product.columns <= kMaxCachedElements;
  const int64_t block_rows = is_cached ? kTileDepth : product.rows,
                part_depth = is_cached || kParts<E> > 1 ? product.depth : kMaxPanelDepth;
  for (int64_t first = 0; first < product.rows; first += block_rows)
    for (int64_t k = 0; k < product.depth; k += part_depth) {
      PanelProduct part = product;
      part.depth = std::min(part_depth, product.depth - k);
      part.a.upper += k;  // k is 0 if E is float
      part.a.lower += k;
      part.panels += k * kPanelColumns;
      for (int64_t column = 0; column < product.columns; column += kPanelColumns)
        for (int64_t row = first; row < std::min(first + block_rows, product.rows); row += kTileDepth)
          multiply_panel<E>(part, row, column, k > 0);
    }
}

// Converts the matrix `a` (rows, depth) to left operands with the depth `padded_depth`. Columns from `depth`
// on are zero. Returns the left operand for the first 32 rows. The operands of consecutive groups of 32 rows
// are 32 * kParts * padded_depth elements apart. The result points to `a` or to a buffer of the calling
// thread. The next call in the same thread overwrites the buffer.
LeftOperand convert_left_rows(const BFloat16* a, int64_t rows, int64_t depth, int64_t padded_depth) {
  if (depth == padded_depth) return make_left_rows(a, depth);
  auto* const padded = left_memory.get<BFloat16>(rows * padded_depth);
  std::fill_n(padded, rows * padded_depth, BFloat16{});
  for (int64_t row = 0; row < rows; ++row) std::copy_n(a + row * depth, depth, padded + row * padded_depth);
  return make_left_rows(padded, padded_depth);
}
LeftOperand convert_left_rows(const float* a, int64_t rows, int64_t depth, int64_t padded_depth) {
  constexpr int64_t kGroup = kParts<float> * kPartStride;  // size of the tiles of 32 x 32 elements
  auto* const tiles = left_memory.get<BFloat16>(kParts<float> * round_up(rows, kTileDepth) * padded_depth);
  for (int64_t row = 0; row < rows; ++row) {
    BFloat16* to =
        tiles + row / kTileDepth * (padded_depth / kTileDepth * kGroup) + row % kTileDepth * kTileDepth;
    for (int64_t k = 0; k < depth; k += kTileDepth, to += kGroup)
      split_row(a + row * depth + k, std::min(kTileDepth, depth - k), to, kPartStride);
  }
  return make_packed_left<float>(tiles);
}

// Computes the matrix product c = a b, or c += a b if `add` is true. c is (rows, columns), with at most 32
// rows and at most 32 columns. pack_rows() has packed the operands.
template <class E>
void multiply_packed(int64_t rows, int64_t columns, int64_t depth, const BFloat16* a, const BFloat16* panel,
                     bool add, float* c, int64_t c_stride) {
  const LeftOperand left = make_packed_left<E>(a);
  const RightOperand right = make_packed_right<E>(panel);
  if (rows == kTileDepth && columns == kPanelColumns)
    return multiply_block<E>(left, right, depth, add, c, c_stride);
  multiply_incomplete_block<E>(left, right, depth, add, rows, columns, c, c_stride);
}

}  // namespace

template <class E>
int64_t compute_packed_bytes(int64_t depth, int64_t columns) {
  return kParts<E> * round_up(depth, kTileDepth) * round_up(columns, kPanelColumns) *
         int64_t{sizeof(BFloat16)};
}

template <class E>
void pack(int64_t depth, int64_t columns, const float* b, bool transposed, int64_t begin, int64_t end,
          BFloat16* packed) {
  constexpr int64_t kBlockElements = kTileDepth * kPanelColumns;
  alignas(64) BFloat16 block[kParts<E> * kBlockElements];
  BFloat16* tile = packed + kParts<E> * begin * round_up(depth, kTileDepth);
  for (int64_t column = begin; column < end; column += kPanelColumns)
    for (int64_t k = 0; k < depth; k += kTileDepth) {
      const int64_t width = std::min(kPanelColumns, end - column), height = std::min(kTileDepth, depth - k);
      if (width < kPanelColumns || height < kTileDepth)
        std::fill(std::begin(block), std::end(block), BFloat16{});
      if (transposed)
        for (int64_t j = 0; j < width; ++j)
          convert_row<E>(b + (column + j) * depth + k, height, block + j * kTileDepth, kBlockElements);
      else
        for (int64_t i = 0; i < height; ++i)
          convert_row<E>(b + (k + i) * columns + column, width, block + i * kPanelColumns, kBlockElements);
      for (int64_t part = 0; part < kParts<E>; ++part)
        for (int64_t half = 0; half < kPanelColumns; half += kTileSide, tile += kTileElements) {
          const BFloat16* const from = block + part * kBlockElements;
          if (transposed)
            transpose_pairs(from + half * kTileDepth, kTileDepth, tile);
          else
            pack_tile(from + half, kPanelColumns, tile);
        }
    }
}

template <class E>
void multiply(int64_t rows, int64_t depth, int64_t columns, const E* a, const BFloat16* packed, float* out,
              int64_t out_stride) {
  if (rows == 0) return;
  const int64_t padded_depth = round_up(depth, kTileDepth), max_rows = choose_block_rows<E>(padded_depth);
  TileRegisters registers(std::min(rows, kTileDepth));
  for (int64_t row = 0, count; row < rows; row += count) {
    const int64_t left_rows = rows - row;
    count = left_rows < kTileDepth ? left_rows : std::min(max_rows, left_rows / kTileDepth * kTileDepth);
    if (row > 0 && count < kTileDepth) registers.configure(count);
    const PanelProduct product{.rows = count,
                               .depth = padded_depth,
                               .columns = columns,
                               .a = convert_left_rows(a + row * depth, count, depth, padded_depth),
                               .a_stride = kParts<E> * padded_depth,
                               .panels = packed,
                               .panel_stride = kParts<E> * padded_depth * kPanelColumns,
                               .c = out + row * out_stride,
                               .c_stride = out_stride};
    count <= kTileSide ? multiply_few_rows<E>(product) : multiply_panels<E>(product);
  }
}

template <class E>
void multiply_transposed(int64_t rows, int64_t m, int64_t n, const E* a, const E* b, bool add, float* out) {
  const int64_t blocks = (rows + kMaxDepth - 1) / kMaxDepth;
  const int64_t max_rows = blocks > 0 ? round_up((rows + blocks - 1) / blocks, kTileDepth) : 0;
  auto* const left = left_memory.get<BFloat16>(kParts<E> * max_rows * round_up(m, kPanelColumns));
  auto* const right = right_memory.get<BFloat16>(kParts<E> * max_rows * round_up(n, kPanelColumns));
  const TileRegisters registers;
  for (int64_t row = 0; row < rows; row += max_rows) {
    const int64_t count = std::min(max_rows, rows - row), depth = round_up(count, kTileDepth),
                  stored_depth = kParts<E> * depth;  // elements of a packed row or column
    pack_rows<true>(count, m, a + row * m, left);
    pack_rows<false>(count, n, b + row * n, right);
    // A group of right panels has at most 512 KiB and stays in the L2 cache while all left panels are read.
    const int64_t group = kMaxCachedElements / 2 / stored_depth / kPanelColumns * kPanelColumns;
    for (int64_t first = 0; first < n; first += group)
      for (int64_t i = 0; i < m; i += kTileDepth)
        for (int64_t j = first; j < std::min(first + group, n); j += kPanelColumns)
          multiply_packed<E>(std::min(kTileDepth, m - i), std::min(kPanelColumns, n - j), depth,
                             left + i * stored_depth, right + j * stored_depth, add || row > 0,
                             out + i * n + j, n);
  }
}

template <class E>
struct AmxProducts {
  inline static const FunctionInstances all{&compute_packed_bytes<E>, &pack<E>, &multiply<E>,
                                            &multiply_transposed<E>};
};
template struct AmxProducts<BFloat16>;
template struct AmxProducts<float>;

}  // namespace tapeformer::cpu::amx
