// The scan of outer_product_scan.h, computed with the tile instructions of AMX for blocks of 32 tokens. The
// formulas for a block, in which a, b, c and out are matrices with one row per token, are:
//   P = c aᵀ, where element (i, j) is set to zero if the scan reaches token j after token i,
//   out = c state + P b, with the state before the block,
//   state += aᵀ b.
// ScanMode::read computes out = c state, and ScanMode::update only changes the state. All operands of matrix
// products (a, b, c, P and the state) are rounded to bfloat16. Sums and the stored state are float32.
// Subnormal operands and results become zero. If b is NaN or infinite for a token, `out` can be NaN for all
// tokens of the same block, because P b contains products of b and zero.
#pragma once

#include <algorithm>
#include <utility>

#include "ops/cpu/amx_packing.h"
#include "ops/cpu/growing_memory.h"
#include "ops/cpu/outer_product_scan.h"

namespace tapeformer::cpu::amx {

// True if this build has the scan. The panels of outer_product_scan.h have kPanelColumns columns only if
// vectors have 64 bytes.
inline constexpr bool kHasScan = kIsBuilt && kPanelWidth<float> == kPanelColumns;

namespace detail {

// Number of elements of a block of 32 x 32 elements, which is stored in two tiles.
inline constexpr int64_t kBlockElements = kTileDepth * kPanelColumns;

// Returns the memory of the calling thread for the operands of a scan.
inline GrowingMemory& get_scan_memory() {
  static thread_local GrowingMemory memory;
  return memory;
}

// A row-major matrix (rows, columns). The functions below use its first 32 rows and first 32 columns.
// `columns` is a multiple of kLanes<float>.
struct Matrix {
  const float* data;
  int64_t stride, rows, columns;

  // Loads a vector. Elements outside the matrix are zero.
  [[gnu::always_inline]] Vector<float> load_vector(int64_t row, int64_t column) const {
    return row < rows && column < columns ? load(data + row * stride + column) : Vector<float>{};
  }
};

// Rounds the matrix x to bfloat16, pads it with zeros to 32 rows and 32 columns, and writes it to the two
// tiles of a left operand.
inline void round_left(const Matrix& x, BFloat16* tiles) {
  for (int64_t row = 0; row < kTileDepth; ++row)
    for (int64_t at = 0; at < kPanelColumns; at += kLanes<float>)
      store_dot_product_operand(tiles + row * kTileDepth + at, x.load_vector(row, at));
}

// Rounds the matrix x to bfloat16, pads it with zeros to 32 rows and 32 columns, and writes it to the two
// tiles of a right operand.
inline void round_right(const Matrix& x, BFloat16* tiles) {
  for (int64_t at = 0; at < kPanelColumns; at += kTileSide, tiles += kTileElements)
    for (int64_t p = 0; p < kTileSide; ++p)
      store_pairs(tiles + p * kTileDepth,
                  narrow_pairs(x.load_vector(2 * p, at), x.load_vector(2 * p + 1, at)));
}

// Converts the tiles of a right operand b (32, 32) to the tiles of a left operand with the same elements.
inline void convert_right_to_left(const BFloat16* right, BFloat16* left) {
  for (int64_t p = 0; p < kTileSide; ++p) {
    const Pairs low = load_pairs(right + p * kTileDepth),
                high = load_pairs(right + kTileElements + p * kTileDepth);
    store_pairs(left + 2 * p * kTileDepth, join_halves<0>(low, high));
    store_pairs(left + (2 * p + 1) * kTileDepth, join_halves<1>(low, high));
  }
}

// Rounds `products` (32, 32) to bfloat16, and writes the rounded products to the two tiles of a left operand.
// In row i, sets the columns after i (kStep = 1) or before i (kStep = -1) to zero.
template <int kStep>
void round_masked(const float* products, BFloat16* tiles) {
  Vector<int32_t> lanes;
  for (int32_t i = 0; i < kLanes<float>; ++i) lanes[i] = i;
  for (int32_t i = 0; i < kTileDepth; ++i)
    for (int32_t at = 0; at < kPanelColumns; at += static_cast<int32_t>(kLanes<float>)) {
      const Vector<float> product = load(products + i * kPanelColumns + at);
      const Vector<int32_t> column = lanes + at;
      store_dot_product_operand(tiles + i * kTileDepth + at,
                                (kStep > 0 ? column <= i : column >= i) ? product : Vector<float>{});
    }
}

// Implementation of scan_outer_products().
template <ScanMode kMode, int kStep>
class Scan {
  static constexpr bool kUpdate = kMode != ScanMode::read, kRead = kMode != ScanMode::update;
  static_assert(kChunkTokens % kTileDepth == 0);

 public:
  Scan(float* state, int64_t rows, int64_t columns)
      : state_(state),
        rows_(rows),
        columns_(columns),
        stride_(round_up_to_vector<float>(columns)),
        row_panels_((rows + kPanelColumns - 1) / kPanelColumns),
        column_panels_((columns + kPanelColumns - 1) / kPanelColumns) {
    BFloat16* tiles = get_scan_memory().get<BFloat16>(
        (3 * row_panels_ + column_panels_ + row_panels_ * column_panels_) * kBlockElements);
    const auto take = [&](int64_t blocks) { return std::exchange(tiles, tiles + blocks * kBlockElements); };
    a_right_ = take(row_panels_);
    a_left_ = take(row_panels_);
    c_ = take(row_panels_);
    b_ = take(column_panels_);
    state_tiles_ = take(row_panels_ * column_panels_);
  }

  void run(const ScanOperands<float>& o, int64_t count) {
    if constexpr (kMode == ScanMode::read) convert_state();
    const int64_t last = (count - 1) / kTileDepth * kTileDepth;
    for (int64_t i = 0; i <= last; i += kTileDepth) {
      const int64_t first = kStep > 0 ? i : last - i;
      run_block(o, first, std::min(kTileDepth, count - first));
    }
  }

 private:
  // Returns the matrix (tokens, elements) of the tokens [first, first + count) in one panel of an operand
  // with `elements` elements per token.
  static Matrix get_rows(const float* operand, int64_t elements, int64_t panel, int64_t first,
                         int64_t count) {
    return {operand + compute_panel_index<float>(first, panel * kPanelColumns), kPanelColumns, count,
            round_up_to_vector<float>(elements) - panel * kPanelColumns};
  }

  void convert_operands(const ScanOperands<float>& o, int64_t first, int64_t count) {
    for (int64_t r = 0; r < row_panels_; ++r) {
      const int64_t block = r * kBlockElements;
      if constexpr (kRead) round_left(get_rows(o.c, rows_, r, first, count), c_ + block);
      if constexpr (kUpdate) {
        alignas(64) BFloat16 a[kBlockElements];
        round_left(get_rows(o.a, rows_, r, first, count), a);
        for (int64_t half = 0; half < kBlockElements; half += kTileElements)
          transpose_pairs(a + half, kTileDepth, a_right_ + block + half);
        convert_right_to_left(a_right_ + block, a_left_ + block);
      }
    }
    if constexpr (kUpdate)
      for (int64_t p = 0; p < column_panels_; ++p)
        round_right(get_rows(o.b, columns_, p, first, count), b_ + p * kBlockElements);
  }

  void convert_state() {
    for (int64_t p = 0; p < column_panels_; ++p)
      for (int64_t r = 0; r < row_panels_; ++r)
        round_right({state_ + r * kTileDepth * stride_ + p * kPanelColumns, stride_, rows_ - r * kTileDepth,
                     stride_ - p * kPanelColumns},
                    state_tiles_ + (p * row_panels_ + r) * kBlockElements);
  }

  void run_block(const ScanOperands<float>& o, int64_t first, int64_t count) {
    convert_operands(o, first, count);
    if constexpr (kMode == ScanMode::update_then_read) convert_state();
    alignas(64) float products[kBlockElements];
    alignas(64) BFloat16 masked[kBlockElements];
    const int64_t depth = row_panels_ * kTileDepth;
    if constexpr (kMode == ScanMode::update_then_read) {
      multiply_block<BFloat16>(make_packed_left<BFloat16>(c_), make_packed_right<BFloat16>(a_right_), depth,
                               false, products, kPanelColumns);
      round_masked<kStep>(products, masked);
    }
    for (int64_t p = 0; p < column_panels_; ++p) {
      const RightOperand b = make_packed_right<BFloat16>(b_ + p * kBlockElements);
      if constexpr (kRead) {
        float* const out = o.out + compute_panel_index<float>(first, p * kPanelColumns);
        multiply_block<BFloat16>(make_packed_left<BFloat16>(c_),
                                 make_packed_right<BFloat16>(state_tiles_ + p * row_panels_ * kBlockElements),
                                 depth, false, out, kPanelColumns);
        if constexpr (kUpdate)
          multiply_block<BFloat16>(make_packed_left<BFloat16>(masked), b, kTileDepth, true, out,
                                   kPanelColumns);
      }
      if constexpr (kUpdate)
        for (int64_t r = 0; r < row_panels_; ++r) add_to_state(r, p, b);
    }
  }

  // Adds the product of rows [32 r, 32 r + 32) of aᵀ and columns [32 p, 32 p + 32) of b to the state.
  void add_to_state(int64_t r, int64_t p, const RightOperand& b) {
    const LeftOperand a = make_packed_left<BFloat16>(a_left_ + r * kBlockElements);
    float* const block = state_ + r * kTileDepth * stride_ + p * kPanelColumns;
    const int64_t rows = std::min(kTileDepth, rows_ - r * kTileDepth),
                  columns = std::min(kPanelColumns, columns_ - p * kPanelColumns);
    if (rows == kTileDepth && columns == kPanelColumns)
      multiply_block<BFloat16>(a, b, kTileDepth, true, block, stride_);
    else
      multiply_incomplete_block<BFloat16>(a, b, kTileDepth, true, rows, columns, block, stride_);
  }

  float* state_;
  int64_t rows_, columns_, stride_, row_panels_, column_panels_;
  BFloat16 *a_right_, *a_left_;  // aᵀ as a right operand and as a left operand
  BFloat16 *c_, *b_, *state_tiles_;
};

}  // namespace detail

// Scans `count` tokens, at least 1, with a state (rows, columns), where `rows` is at least 1. Each row of the
// state is padded to whole vectors. kMode and kStep have the same meaning as in cpu::scan_outer_products().
// Overwrites o.out. The rows of o.out from `count` up to the next multiple of 32 are unspecified. Requires
// kHasScan, and a TileRegisters object with 32 rows in the calling thread.
template <ScanMode kMode, int kStep = 1>
void scan_outer_products(float* state, int64_t rows, int64_t columns, const ScanOperands<float>& o,
                         int64_t count) {
  detail::Scan<kMode, kStep>(state, rows, columns).run(o, count);
}

}  // namespace tapeformer::cpu::amx
