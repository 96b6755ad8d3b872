#include "ops/cpu/amx_tiles.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "core/base/instances.h"
#include "core/base/instruction_set.h"

namespace tapeformer::cpu::amx {
namespace {

// A tile of sums is (kSide, kSide). A tile of an operand is stored as (kSide, kTileDepth).
constexpr int64_t kSide = kTileSide;
constexpr int64_t kFloatBytes = sizeof(float), kBFloat16Bytes = sizeof(BFloat16);

#define TAPEFORMER_AMX [[gnu::target("amx-tile,amx-bf16")]]

// The configuration of the tile registers. Registers 0 to 3 hold sums, 4 and 5 left operands, and 6 and 7
// right operands.
struct alignas(64) TileConfiguration {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes_per_row[16] = {};
  uint8_t rows[16] = {};
};

// Configures the tile registers for blocks with `rows` rows, from 1 to 32. Registers 0, 1 and 4 hold the
// first 16 rows. Registers 2, 3 and 5 hold the other rows.
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

// The parts of the operands in a product of two parts.
struct Term {
  int left, right;
};
// Products of parts, in the order of computation: first kSmall, in one pass over the depth, then kLarge, in a
// second pass. A small term is at most about 2^-8 of the large term. Small terms are computed first, so that
// their rounding errors are relative to a small sum. Two consecutive terms share one part, which stays in its
// tile registers.
template <class E>
struct Terms {
  static constexpr std::array<Term, 0> kSmall = {};
  static constexpr std::array<Term, 1> kLarge = {{{0, 0}}};
};
template <>
struct Terms<float> {
  static constexpr std::array<Term, 5> kSmall = {{{0, 2}, {0, 1}, {1, 1}, {1, 0}, {2, 0}}};
  static constexpr std::array<Term, 1> kLarge = {{{0, 0}}};
};

// True if multiply_block() loads c into the tile registers before the first product if `add` is true. For
// float elements, the value is false: the product is computed from zero and added to c at the end, so that
// small terms are added to a small sum.
template <class E>
inline constexpr bool kAddsInTiles = kParts<E> == 1;

// The addresses of the tiles that multiply_terms() loads next, and their row strides in bytes.
struct TileAddresses {
  const BFloat16 *upper, *lower, *first, *second;
  int64_t left_stride, right_stride;
};

// multiply_and_load_left(), multiply_and_load_right() and multiply_and_load() add the products of the
// operands in the tile registers to the sums in the tile registers. After the last product that reads a
// register, multiply_and_load_left() loads the next left operand, multiply_and_load_right() loads the next
// right operand, and multiply_and_load() loads both. Loads and products overlap.
[[gnu::always_inline]] TAPEFORMER_AMX inline void multiply_and_load_left(const TileAddresses& next) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(4, next.upper, next.left_stride);
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
  _tile_loadd(5, next.lower, next.left_stride);
}
[[gnu::always_inline]] TAPEFORMER_AMX inline void multiply_and_load_right(const TileAddresses& next) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(2, 5, 6);
  _tile_loadd(6, next.first, next.right_stride);
  _tile_dpbf16ps(1, 4, 7);
  _tile_dpbf16ps(3, 5, 7);
  _tile_loadd(7, next.second, next.right_stride);
}
[[gnu::always_inline]] TAPEFORMER_AMX inline void multiply_and_load(const TileAddresses& next) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  _tile_loadd(4, next.upper, next.left_stride);
  _tile_dpbf16ps(2, 5, 6);
  _tile_loadd(6, next.first, next.right_stride);
  _tile_dpbf16ps(3, 5, 7);
  _tile_loadd(7, next.second, next.right_stride);
  _tile_loadd(5, next.lower, next.left_stride);
}

// Computes the products of parts in kTerms for the matrix product a b, and adds these products to the sums in
// the tile registers. `steps` is the number of tiles of each operand along the inner dimension, at least 1.
template <const auto& kTerms>
[[gnu::always_inline]] TAPEFORMER_AMX inline void multiply_terms(const LeftOperand& a, const RightOperand& b,
                                                                 int64_t steps) {
  constexpr int kCount = static_cast<int>(kTerms.size());
  if constexpr (kCount > 0) {
    const auto locate = [&](int64_t step, int term) __attribute__((always_inline)) {
      const int64_t left = step * a.tile_stride + kTerms[static_cast<size_t>(term)].left * kPartStride,
                    right = step * b.tile_stride + kTerms[static_cast<size_t>(term)].right * kPartStride;
      return TileAddresses{a.upper + left,
                           a.lower + left,
                           b.first + right,
                           b.second + right,
                           a.row_stride * kBFloat16Bytes,
                           b.row_stride * kBFloat16Bytes};
    };
    const TileAddresses start = locate(0, 0);
    _tile_loadd(4, start.upper, start.left_stride);
    _tile_loadd(6, start.first, start.right_stride);
    _tile_loadd(7, start.second, start.right_stride);
    _tile_loadd(5, start.lower, start.left_stride);
    for (int64_t step = 0; step < steps; ++step) {
#pragma GCC unroll 8
      for (int term = 1; term < kCount; ++term)
        if (kTerms[term].left == kTerms[term - 1].left)
          multiply_and_load_right(locate(step, term));
        else
          multiply_and_load_left(locate(step, term));
      if (step + 1 < steps) multiply_and_load(locate(step + 1, 0));
    }
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
}

// Computes c = a b, or c += a b if kAccumulate is true. c has 32 columns, and the number of rows that
// configure_tiles() received. `steps` is the number of tiles of each operand along the inner dimension, at
// least 1. `c_stride` is the row stride of c in elements.
template <class E, bool kAccumulate>
TAPEFORMER_AMX void multiply_tiles(const LeftOperand& a, const RightOperand& b, int64_t steps, float* c,
                                   int64_t c_stride) {
  float* const lower = c + kSide * c_stride;
  const int64_t stride = c_stride * kFloatBytes;
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
  multiply_terms<Terms<E>::kSmall>(a, b, steps);
  multiply_terms<Terms<E>::kLarge>(a, b, steps);
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kSide, stride);
  _tile_stored(2, lower, stride);
  _tile_stored(3, lower + kSide, stride);
}

// Computes the products of parts in kTerms for multiply_flat_block(), and adds these products to the sums in
// the tile registers. `steps` is the number of tiles of each operand along the inner dimension.
template <const auto& kTerms>
[[gnu::always_inline]] TAPEFORMER_AMX inline void multiply_flat_terms(const LeftOperand& a,
                                                                      const RightOperand& b,
                                                                      const RightOperand& next_b,
                                                                      int64_t steps) {
  const int64_t left_stride = a.row_stride * kBFloat16Bytes, right_stride = b.row_stride * kBFloat16Bytes;
  for (int64_t step = 0; step < steps; ++step)
    for (const Term& term : kTerms) {
      const int64_t right = step * b.tile_stride + term.right * kPartStride;
      _tile_loadd(4, a.upper + step * a.tile_stride + term.left * kPartStride, left_stride);
      _tile_loadd(6, b.first + right, right_stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b.second + right, right_stride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(6, next_b.first + right, right_stride);
      _tile_dpbf16ps(2, 4, 6);
      _tile_loadd(7, next_b.second + right, right_stride);
      _tile_dpbf16ps(3, 4, 7);
    }
}

// Implements multiply_flat_block(). `steps` is the number of tiles of each operand along the inner dimension.
template <class E>
TAPEFORMER_AMX void multiply_flat_tiles(const LeftOperand& a, const RightOperand& b,
                                        const RightOperand& next_b, int64_t steps, float* c,
                                        int64_t c_stride) {
  const int64_t stride = c_stride * kFloatBytes;
  before_tile_loads();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  multiply_flat_terms<Terms<E>::kSmall>(a, b, next_b, steps);
  multiply_flat_terms<Terms<E>::kLarge>(a, b, next_b, steps);
  _tile_stored(0, c, stride);
  _tile_stored(1, c + kSide, stride);
  _tile_stored(2, c + 2 * kSide, stride);
  _tile_stored(3, c + 3 * kSide, stride);
}

TAPEFORMER_AMX void release_tiles() {
  _tile_release();
}

}  // namespace

bool is_available() {
  constexpr ExtensionSet kNeeded = make_extension_set("amx_tile amx_bf16");
  // The values of ARCH_REQ_XCOMP_PERM and XFEATURE_XTILEDATA in Linux.
  constexpr int kRequestPermission = 0x1023, kTileData = 18;
  static const bool has_amx = (kNeeded & ~detect_processor_extensions()) == 0 &&
                              syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return has_amx;
}

void TileRegisters::configure(int64_t rows) {
  configure_tiles(rows);
}
TileRegisters::~TileRegisters() {
  release_tiles();
}

template <class E>
void multiply_incomplete_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add,
                               int64_t rows, int64_t columns, float* c, int64_t stride) {
  alignas(64) float sums[kTileDepth * kPanelColumns] = {};
  const bool adds_in_tiles = add && kAddsInTiles<E>;
  for (int64_t r = 0; r < rows && adds_in_tiles; ++r)
    std::copy_n(c + r * stride, columns, sums + r * kPanelColumns);
  if (adds_in_tiles)
    multiply_tiles<E, true>(a, b, depth / kTileDepth, sums, kPanelColumns);
  else
    multiply_tiles<E, false>(a, b, depth / kTileDepth, sums, kPanelColumns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t j = 0; j < columns; ++j) {
      float& element = c[r * stride + j];
      element = add && !adds_in_tiles ? element + sums[r * kPanelColumns + j] : sums[r * kPanelColumns + j];
    }
}

template <class E>
void multiply_block(const LeftOperand& a, const RightOperand& b, int64_t depth, bool add, float* c,
                    int64_t stride) {
  if (!add) return multiply_tiles<E, false>(a, b, depth / kTileDepth, c, stride);
  if constexpr (kAddsInTiles<E>)
    multiply_tiles<E, true>(a, b, depth / kTileDepth, c, stride);
  else
    multiply_incomplete_block<E>(a, b, depth, add, kTileDepth, kPanelColumns, c, stride);
}

template <class E>
void multiply_flat_block(const LeftOperand& a, const RightOperand& b, const RightOperand& next_b,
                         int64_t depth, float* c, int64_t stride) {
  multiply_flat_tiles<E>(a, b, next_b, depth / kTileDepth, c, stride);
}

template <class E>
struct BlockProducts {
  inline static const FunctionInstances all{&multiply_block<E>, &multiply_incomplete_block<E>,
                                            &multiply_flat_block<E>};
};
template struct BlockProducts<BFloat16>;
template struct BlockProducts<float>;

}  // namespace tapeformer::cpu::amx
