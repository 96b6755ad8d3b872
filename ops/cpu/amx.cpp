#include "ops/cpu/amx.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "core/cpu/bfloat16.h"
#include "core/cpu/bfloat16_pairs.h"
#include "core/instruction_set.h"
#include "ops/cpu/growing_memory.h"

namespace tapeformer::cpu::amx {
namespace {

// A tile of sums is (kSide, kSide). A tile of an operand is stored as (kSide, kTileDepth).
constexpr int64_t kSide = kTileSide, kTile = kTileElements;
constexpr int64_t kMaxDepth = 512;  // maximum number of rows that multiply_transposed() packs at a time
// Maximum number of elements of b that multiply_panels() keeps in the L2 cache. 2^19 elements have 1 MiB,
// half of the L2 cache of processors with AMX.
constexpr int64_t kMaxCachedElements = 1 << 19;
constexpr int64_t kFloatBytes = sizeof(float), kBFloat16Bytes = sizeof(BFloat16);

int64_t round_up(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Transposes a matrix of 16 x 16 pairs of bfloat16 elements. `stride` is the row stride of `from` in
// elements.
void transpose_pairs(const BFloat16* from, int64_t stride, BFloat16* to) {
  constexpr int64_t kLength = kLanes<float>;
  for (int64_t i = 0; i < kSide; i += kLength)
    for (int64_t j = 0; j < kSide; j += kLength) {
      Vector<float> block[kLength];  // each float holds the bits of two bfloat16 numbers
      for (int64_t l = 0; l < kLength; ++l)
        block[l] = std::bit_cast<Vector<float>>(load_pairs(from + (i + l) * stride + 2 * j));
      transpose(block);
      for (int64_t l = 0; l < kLength; ++l)
        store_pairs(to + (j + l) * kTileDepth + 2 * i, std::bit_cast<Pairs>(block[l]));
    }
}

// Packs 32 rows of 16 columns of x into a tile of the right operand. Row p of the tile holds, for each
// column, the pair of the elements in rows 2p and 2p + 1 of x.
void pack_tile(const BFloat16* x, int64_t stride, BFloat16* tile) {
  for (int64_t p = 0; p < kSide; ++p, x += 2 * stride)
    for (int64_t j = 0; j < kSide; j += kLanes<float>)
      store_pairs(tile + p * kTileDepth + 2 * j, interleave_rows(x + j, x + stride + j));
}

// A block of a packed matrix: kTileDepth rows of kPanelColumns columns.
struct Block {
  BFloat16 values[kTileDepth * kPanelColumns];
};

// Packs x (rows, width) into tiles of the left operand if kLeft is true, and into tiles of the right operand
// otherwise. The tiles of the left operand are transposed.
template <bool kLeft>
void pack_rows(int64_t rows, int64_t width, const BFloat16* x, BFloat16* panels) {
  alignas(64) Block padded;
  alignas(64) BFloat16 pairs[kTile];
  for (int64_t column = 0; column < width; column += kPanelColumns)
    for (int64_t row = 0; row < rows; row += kTileDepth) {
      const BFloat16* block = x + row * width + column;
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
      for (int64_t half = 0; half < kPanelColumns; half += kSide, panels += kTile) {
        pack_tile(block + half, stride, kLeft ? pairs : panels);
        if (kLeft) transpose_pairs(pairs, kTileDepth, panels);
      }
    }
}

#define TAPEFORMER_AMX [[gnu::target("amx-tile,amx-bf16")]]

// The configuration of the tile registers. Registers 0 to 3 hold sums, 4 and 5 left operands, and 6 and 7
// right operands.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Configures the tile registers for a product with `rows` rows, at most 32. If `rows` exceeds 16, registers
// 2, 3 and 5 hold the rows after the first 16.
TAPEFORMER_AMX void configure_tiles(int64_t rows) {
  TileConfiguration configuration;
  for (int i = 0; i < 8; ++i) {
    configuration.bytes_per_row[i] = kTileDepth * kBFloat16Bytes;
    const bool upper = i == 2 || i == 3 || i == 5;
    const int64_t count = i >= 6 ? kSide : upper && rows > kSide ? rows - kSide : std::min(rows, kSide);
    configuration.rows[i] = static_cast<uint8_t>(count);
  }
  asm volatile("" ::: "memory");
  _tile_loadconfig(&configuration);
}

// Prevents the compiler from moving stores after tile loads. The intrinsics of GCC do not tell the compiler
// that a tile load reads memory.
inline void before_tile_loads() {
  asm volatile("" ::: "memory");
}

// Computes c = a b, or c += a b if kAccumulate is true. c has 32 columns, and the number of rows that
// configure_tiles() received. `steps` is the number of tiles along the inner dimension, at least 1.
// `c_stride` is the row stride of c in elements.
template <bool kAccumulate>
TAPEFORMER_AMX void multiply_tiles(const LeftOperand& a, const RightOperand& b, int64_t steps, float* c,
                                   int64_t c_stride) {
  float* const lower = c + kSide * c_stride;
  const int64_t stride = c_stride * kFloatBytes, left_stride = a.row_stride * kBFloat16Bytes,
                right_stride = b.row_stride * kBFloat16Bytes;
  before_tile_loads();
  if (kAccumulate) {
    _tile_loadd(0, c, stride);
    _tile_loadd(1, c + kSide, stride);
    _tile_loadd(2, lower, stride);
    _tile_loadd(3, lower + kSide, stride);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  // The loop reloads each tile register directly after the last product that reads it, so that loads overlap
  // with products.
  const BFloat16 *upper_rows = a.upper, *lower_rows = a.lower, *first = b.first, *second = b.second;
  _tile_loadd(4, upper_rows, left_stride);
  _tile_loadd(6, first, right_stride);
  _tile_loadd(7, second, right_stride);
  _tile_loadd(5, lower_rows, left_stride);
  for (int64_t step = 1; step < steps; ++step) {
    upper_rows += a.tile_stride, lower_rows += a.tile_stride;
    first += b.tile_stride, second += b.tile_stride;
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, upper_rows, left_stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, first, right_stride);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, second, right_stride);
    _tile_loadd(5, lower_rows, left_stride);
  }
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kSide, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + kSide, stride);
}

// Computes the matrix product c = a b for c with 64 columns and at most 16 rows. Only a.upper is read.
// `panel` and `next_panel` are the two panels of b. `steps` is the number of tiles along the inner dimension.
// `c_stride` is the row stride of c in elements.
TAPEFORMER_AMX void multiply_flat_tiles(const LeftOperand& a, const BFloat16* panel,
                                        const BFloat16* next_panel, int64_t steps, float* c,
                                        int64_t c_stride) {
  const int64_t stride = c_stride * kFloatBytes, left_stride = a.row_stride * kBFloat16Bytes;
  before_tile_loads();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const BFloat16* left = a.upper;
  for (int64_t step = 0; step < steps; ++step, panel += 2 * kTile, next_panel += 2 * kTile) {
    _tile_loadd(4, left, left_stride);
    _tile_loadd(6, panel, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + kTile, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, next_panel, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, next_panel + kTile, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(3, 4, 7);
    left += a.tile_stride;
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kSide, stride);
  _tile_stored(2, c + 2 * kSide, stride);
  _tile_stored(3, c + 3 * kSide, stride);
}

TAPEFORMER_AMX void release_tiles() {
  _tile_release();
}

// Returns the right operand that consists of `panel`, a panel of a packed matrix.
RightOperand make_right_panel(const BFloat16* panel) {
  return {panel, panel + kTile, kTileDepth, 2 * kTile};
}

// Calls multiply_tiles() for a matrix product with the inner dimension `depth`, a multiple of kTileDepth.
void multiply_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add, float* c,
                    int64_t c_stride) {
  add ? multiply_tiles<true>(a, b, depth / kTileDepth, c, c_stride)
      : multiply_tiles<false>(a, b, depth / kTileDepth, c, c_stride);
}

// Computes the matrix product c = a b, or c += a b if `add` is true, for c with at most 32 rows and columns.
// Reads and writes only the elements of c. The rounding of an element of c does not depend on the numbers of
// rows and columns.
void multiply_incomplete_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add,
                               int64_t rows, int64_t columns, float* c, int64_t c_stride) {
  alignas(64) float sums[kTileDepth * kPanelColumns] = {};
  for (int64_t r = 0; r < rows && add; ++r) std::copy_n(c + r * c_stride, columns, sums + r * kPanelColumns);
  multiply_block(a, b, depth, add, sums, kPanelColumns);
  for (int64_t r = 0; r < rows; ++r) std::copy_n(sums + r * kPanelColumns, columns, c + r * c_stride);
}

// A product of a (rows, depth) and b (depth, columns). The result c is (rows, columns). In panel p of b, the
// rows that the product uses begin at panels + p * panel_stride. `depth` is a multiple of kTileDepth. Strides
// are numbers of elements.
struct PanelProduct {
  int64_t rows, depth, columns;
  const BFloat16* a;
  int64_t a_stride;
  const BFloat16* panels;
  int64_t panel_stride;
  float* c;
  int64_t c_stride;
};

// Computes the rows [row, min(row + 32, rows)) and the columns [column, min(column + 32, columns)) of a
// product. If `add` is true, adds the product to c.
void multiply_panel(const PanelProduct& p, int64_t row, int64_t column, bool add) {
  const LeftOperand left = make_left_rows(p.a + row * p.a_stride, p.a_stride);
  const RightOperand right = make_right_panel(p.panels + column / kPanelColumns * p.panel_stride);
  const int64_t count = std::min(kPanelColumns, p.columns - column);
  float* const c = p.c + row * p.c_stride + column;
  if (count == kPanelColumns) return multiply_block(left, right, p.depth, add, c, p.c_stride);
  multiply_incomplete_block(left, right, p.depth, add, std::min(kTileDepth, p.rows - row), count, c,
                            p.c_stride);
}

// Computes a product with at most 16 rows.
void multiply_few_rows(const PanelProduct& p) {
  alignas(64) float sums[kSide * 2 * kPanelColumns];
  const LeftOperand left = make_left_rows(p.a, p.a_stride);
  constexpr int64_t kWidth = 2 * kPanelColumns;
  for (int64_t column = 0; column < p.columns; column += kWidth) {
    const int64_t count = std::min(kWidth, p.columns - column), steps = p.depth / kTileDepth;
    const BFloat16* const panel = p.panels + column / kPanelColumns * p.panel_stride;
    const BFloat16* const next_panel = count > kPanelColumns ? panel + p.panel_stride : panel;
    if (count == kWidth) {
      multiply_flat_tiles(left, panel, next_panel, steps, p.c + column, p.c_stride);
      continue;
    }
    multiply_flat_tiles(left, panel, next_panel, steps, sums, kWidth);
    for (int64_t row = 0; row < p.rows; ++row)
      std::copy_n(sums + row * kWidth, count, p.c + row * p.c_stride + column);
  }
}

// Computes a product. product.rows is less than 32 or a multiple of 32.
//
// If b has more than kMaxCachedElements elements, each part of a panel of b is read once for all rows of the
// product. If b has at most kMaxCachedElements elements, b stays in the L2 cache and is read once for each
// block of 32 rows of `a`.
void multiply_panels(const PanelProduct& product) {
  constexpr int64_t kPartDepth = 512;
  const bool is_cached = product.depth * product.columns <= kMaxCachedElements;
  const int64_t block_rows = is_cached ? kTileDepth : product.rows,
                part_depth = is_cached ? product.depth : kPartDepth;
  for (int64_t first = 0; first < product.rows; first += block_rows)
    for (int64_t k = 0; k < product.depth; k += part_depth) {
      PanelProduct part = product;
      part.depth = std::min(part_depth, product.depth - k);
      part.a += k;
      part.panels += k * kPanelColumns;
      for (int64_t column = 0; column < product.columns; column += kPanelColumns)
        for (int64_t row = first; row < std::min(first + block_rows, product.rows); row += kTileDepth)
          multiply_panel(part, row, column, k > 0);
    }
}

// Computes the matrix product c = a b, or c += a b if `add` is true. c is (rows, columns), with at most 32
// rows and at most 32 columns. pack_rows<true>() has packed `a`, and pack_rows<false>() has packed b in
// `panel`.
void multiply_packed(int64_t rows, int64_t columns, int64_t depth, const BFloat16* a, const BFloat16* panel,
                     bool add, float* c, int64_t c_stride) {
  const LeftOperand left = make_packed_left(a);
  const RightOperand right = make_right_panel(panel);
  if (rows == kTileDepth && columns == kPanelColumns)
    return multiply_block(left, right, depth, add, c, c_stride);
  multiply_incomplete_block(left, right, depth, add, rows, columns, c, c_stride);
}

thread_local GrowingMemory left_memory, right_memory;

}  // namespace

bool is_available() {
  constexpr ExtensionSet kNeeded = make_extension_set("amx_tile amx_bf16");
  // The values of ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA in Linux.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool has_amx = (kNeeded & ~detect_processor_extensions()) == 0 &&
                              syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return has_amx;
}

int64_t compute_packed_bytes(int64_t depth, int64_t columns) {
  return round_up(depth, kTileDepth) * round_up(columns, kPanelColumns) * kBFloat16Bytes;
}

void pack(int64_t depth, int64_t columns, const float* b, bool transposed, int64_t begin, int64_t end,
          BFloat16* packed) {
  alignas(64) Block block;
  BFloat16* tile = packed + begin * round_up(depth, kTileDepth);
  for (int64_t column = begin; column < end; column += kPanelColumns)
    for (int64_t k = 0; k < depth; k += kTileDepth) {
      const int64_t width = std::min(kPanelColumns, end - column), height = std::min(kTileDepth, depth - k);
      if (width < kPanelColumns || height < kTileDepth) block = {};
      if (transposed)
        for (int64_t j = 0; j < width; ++j)
          narrow(b + (column + j) * depth + k, height, block.values + j * kTileDepth);
      else
        for (int64_t i = 0; i < height; ++i)
          narrow(b + (k + i) * columns + column, width, block.values + i * kPanelColumns);
      for (int64_t half = 0; half < kPanelColumns; half += kSide, tile += kTile)
        if (transposed)
          transpose_pairs(block.values + half * kTileDepth, kTileDepth, tile);
        else
          pack_tile(block.values + half, kPanelColumns, tile);
    }
}

void multiply(int64_t rows, int64_t depth, int64_t columns, const BFloat16* a, const BFloat16* packed,
              float* out, int64_t out_stride) {
  constexpr int64_t kMaxRows = 256;  // maximum number of rows per call of multiply_panels()
  const int64_t padded_depth = round_up(depth, kTileDepth);
  int64_t configured = 0;
  for (int64_t row = 0, count; row < rows; row += count) {
    const int64_t left_rows = rows - row;
    count = left_rows < kTileDepth ? left_rows : std::min(kMaxRows, left_rows / kTileDepth * kTileDepth);
    const BFloat16* left = a + row * depth;
    if (depth < padded_depth) {
      auto* const padded = left_memory.get<BFloat16>(count * padded_depth);
      std::fill_n(padded, count * padded_depth, BFloat16{});
      for (int64_t r = 0; r < count; ++r) std::copy_n(left + r * depth, depth, padded + r * padded_depth);
      left = padded;
    }
    const int64_t tile_rows = std::min(count, kTileDepth);
    if (tile_rows != configured) configure_tiles(configured = tile_rows);
    const PanelProduct product{.rows = count,
                               .depth = padded_depth,
                               .columns = columns,
                               .a = left,
                               .a_stride = padded_depth,
                               .panels = packed,
                               .panel_stride = padded_depth * kPanelColumns,
                               .c = out + row * out_stride,
                               .c_stride = out_stride};
    count <= kSide ? multiply_few_rows(product) : multiply_panels(product);
  }
  if (configured) release_tiles();
}

void multiply_transposed(int64_t rows, int64_t m, int64_t n, const BFloat16* a, const BFloat16* b, bool add,
                         float* out) {
  const int64_t blocks = (rows + kMaxDepth - 1) / kMaxDepth;
  const int64_t max_rows = blocks > 0 ? round_up((rows + blocks - 1) / blocks, kTileDepth) : 0;
  auto* const left = left_memory.get<BFloat16>(max_rows * round_up(m, kPanelColumns));
  auto* const right = right_memory.get<BFloat16>(max_rows * round_up(n, kPanelColumns));
  configure_tiles(kTileDepth);
  for (int64_t row = 0; row < rows; row += max_rows) {
    const int64_t count = std::min(max_rows, rows - row), depth = round_up(count, kTileDepth);
    pack_rows<true>(count, m, a + row * m, left);
    pack_rows<false>(count, n, b + row * n, right);
    // A group of right panels has at most 512 KiB and stays in the L2 cache while all left panels are read.
    const int64_t group = kMaxCachedElements / 2 / depth / kPanelColumns * kPanelColumns;
    for (int64_t first = 0; first < n; first += group)
      for (int64_t i = 0; i < m; i += kTileDepth)
        for (int64_t j = first; j < std::min(first + group, n); j += kPanelColumns)
          multiply_packed(std::min(kTileDepth, m - i), std::min(kPanelColumns, n - j), depth,
                          left + i * depth, right + j * depth, add || row > 0, out + i * n + j, n);
  }
  release_tiles();
}

void pack_transposed_left(int64_t rows, int64_t width, const BFloat16* x, BFloat16* tiles) {
  pack_rows<true>(rows, width, x, tiles);
}

SquareTiles::SquareTiles() {
  configure_tiles(kTileDepth);
}
SquareTiles::~SquareTiles() {
  release_tiles();
}

void multiply_square(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add, float* c,
                     int64_t stride) {
  multiply_block(a, b, depth, add, c, stride);
}

}  // namespace tapeformer::cpu::amx
