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
constexpr int64_t kSide = 16;
constexpr int64_t kTile = kSide * kTileDepth;  // number of elements of an operand tile
constexpr int64_t kMaxDepth = 512;  // maximum number of rows that add_transposed_product() packs at a time
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

// The left operand of a product.
struct Left {
  const BFloat16 *upper, *lower;  // the first 16 rows, and the next 16 rows
  // `stride` is the distance in bytes from a row to the next row. `step` is the distance in bytes from a tile
  // to the next tile of the same rows.
  int64_t stride, step;
};

// Prevents the compiler from moving stores after tile loads. The intrinsics of GCC do not tell the compiler
// that a tile load reads memory.
inline void before_tile_loads() {
  asm volatile("" ::: "memory");
}

// Computes c = a b, or c += a b if kAccumulate is true. c has at most 32 rows and 32 columns. `panel` is the
// packed panel of b. `steps` is the number of tiles along the inner dimension, at least 1. `stride` is the
// row stride of c in bytes.
template <bool kAccumulate>
TAPEFORMER_AMX void multiply_batches_square(const Left& a, const BFloat16* panel, int64_t steps, float* c,
                                            int64_t stride) {
  float* const lower = c + kSide * stride / kFloatBytes;
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
  const BFloat16 *left = a.upper, *left_lower = a.lower;
  _tile_loadd(4, left, a.stride);
  _tile_loadd(6, panel, kTileDepth * kBFloat16Bytes);
  _tile_loadd(7, panel + kTile, kTileDepth * kBFloat16Bytes);
  _tile_loadd(5, left_lower, a.stride);
  for (int64_t step = 1; step < steps; ++step) {
    left += a.step / kBFloat16Bytes, left_lower += a.step / kBFloat16Bytes, panel += 2 * kTile;
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(4, left, a.stride);
    _tile_dpbf16ps(2, 5, 6);
    _tile_loadd(6, panel, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(3, 5, 7);
    _tile_loadd(7, panel + kTile, kTileDepth * kBFloat16Bytes);
    _tile_loadd(5, left_lower, a.stride);
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

// Computes c = a b for up to 16 rows and 64 columns. `panel` and `next_panel` are the two panels of b.
// `steps` is the number of tiles along the inner dimension. `stride` is the row stride of c in bytes.
TAPEFORMER_AMX void multiply_batches_flat(const Left& a, const BFloat16* panel, const BFloat16* next_panel,
                                          int64_t steps, float* c, int64_t stride) {
  before_tile_loads();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const BFloat16* left = a.upper;
  for (int64_t step = 0; step < steps; ++step, panel += 2 * kTile, next_panel += 2 * kTile) {
    _tile_loadd(4, left, a.stride);
    _tile_loadd(6, panel, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, panel + kTile, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(6, next_panel, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(2, 4, 6);
    _tile_loadd(7, next_panel + kTile, kTileDepth * kBFloat16Bytes);
    _tile_dpbf16ps(3, 4, 7);
    left += a.step / kBFloat16Bytes;
  }
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kSide, stride);
  _tile_stored(2, c + 2 * kSide, stride);
  _tile_stored(3, c + 3 * kSide, stride);
}

TAPEFORMER_AMX void release_tiles() {
  _tile_release();
}

// Computes c (rows, columns) = a (rows, depth) b for at most 32 rows, where `packed` is the packed matrix b.
// `depth` is a multiple of kTileDepth.
void multiply_rows(int64_t rows, int64_t depth, int64_t columns, const BFloat16* a, const BFloat16* packed,
                   float* c, int64_t c_stride) {
  // The product of 32 rows of `a` and one panel of b, or of 16 rows of `a` and two panels of b
  alignas(64) float sums[kTileDepth * kPanelColumns];
  const bool flat = rows <= kSide;
  const int64_t steps = depth / kTileDepth, width = flat ? 2 * kPanelColumns : kPanelColumns;
  const Left left{a, a + kSide * depth, depth * kBFloat16Bytes, kTileDepth * kBFloat16Bytes};
  for (int64_t column = 0; column < columns; column += width) {
    const int64_t count = std::min(width, columns - column);
    const bool whole = count == width;
    float* const target = whole ? c + column : sums;
    const int64_t stride = whole ? c_stride : width;
    const BFloat16* const panel = packed + column * depth;
    if (flat)
      multiply_batches_flat(left, panel, count > kPanelColumns ? panel + kPanelColumns * depth : panel, steps,
                            target, stride * kFloatBytes);
    else
      multiply_batches_square<false>(left, panel, steps, target, stride * kFloatBytes);
    if (!whole)
      for (int64_t row = 0; row < rows; ++row)
        std::copy_n(sums + row * width, count, c + row * c_stride + column);
  }
}

// Adds the product of the packed operands `a` and `panel` to c (rows, columns), which has at most 32 rows and
// 32 columns.
void add_block(int64_t rows, int64_t columns, int64_t depth, const BFloat16* a, const BFloat16* panel,
               float* c, int64_t c_stride) {
  const int64_t steps = depth / kTileDepth;
  const Left left{a, a + kTile, kTileDepth * kBFloat16Bytes, 2 * kTile * kBFloat16Bytes};
  if (rows == kTileDepth && columns == kPanelColumns)
    return multiply_batches_square<true>(left, panel, steps, c, c_stride * kFloatBytes);
  alignas(64) float sums[kTileDepth * kPanelColumns];
  multiply_batches_square<false>(left, panel, steps, sums, kPanelColumns * kFloatBytes);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column)
      c[row * c_stride + column] += sums[row * kPanelColumns + column];
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
  const int64_t padded_depth = round_up(depth, kTileDepth);
  int64_t configured = 0;
  for (int64_t row = 0; row < rows; row += kTileDepth) {
    const int64_t count = std::min(kTileDepth, rows - row);
    const BFloat16* left = a + row * depth;
    if (depth < padded_depth) {
      auto* const padded = left_memory.get<BFloat16>(kTileDepth * padded_depth);
      std::fill_n(padded, kTileDepth * padded_depth, BFloat16{});
      for (int64_t r = 0; r < count; ++r) std::copy_n(left + r * depth, depth, padded + r * padded_depth);
      left = padded;
    }
    if (count != configured) configure_tiles(configured = count);
    multiply_rows(count, padded_depth, columns, left, packed, out + row * out_stride, out_stride);
  }
  if (configured) release_tiles();
}

void add_transposed_product(int64_t rows, int64_t m, int64_t n, const BFloat16* a, const BFloat16* b,
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
    for (int64_t i = 0; i < m; i += kTileDepth)
      for (int64_t j = 0; j < n; j += kPanelColumns)
        add_block(std::min(kTileDepth, m - i), std::min(kPanelColumns, n - j), depth, left + i * depth,
                  right + j * depth, out + i * n + j, n);
  }
  release_tiles();
}

}  // namespace tapeformer::cpu::amx
