// Tiles that are multiplied on tensor cores: operands rounded to bfloat16, or to a sum of two bfloat16
// numbers, with float32 sums. A warp holds 16 rows of a tile and multiplies 16 x 16 x 8 elements per
// instruction.
#pragma once

#include <bit>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

inline constexpr int kTensorWarps = 4;
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
// Stride of a row of a slice, in pairs of terms. The padding of four pairs avoids bank conflicts when
// fragments are read and when slices are filled.
template <int kDepth>
inline constexpr int kPairStride = kDepth / 2 + 4;

// An operand is a sum of kParts bfloat16 numbers. Two parts hold 16 of the 24 mantissa bits of a float32.
template <int kParts>
struct TensorMemory {
  static constexpr size_t kSliceBytes = 2 * kParts * kTokens * kPairStride<kSliceDepth> * sizeof(uint32_t);
  static constexpr size_t kBytes = kSliceBytes;  // equals kSliceBytes, because weights stay in registers
  uint32_t *left, *right;  // [part][row of left, column of right][term / 2], pairs of adjacent terms

  __device__ TensorMemory()
      : left(dynamic_shared<uint32_t>()), right(left + kParts * kTokens * kPairStride<kSliceDepth>) {}
};

// Returns a pair of bfloat16 numbers. If `part` is 0, they are `first` and `second` rounded; if `part` is 1,
// they are the rounded remainders.
__device__ inline uint32_t bfloat16_part(float first, float second, int part) {
  const uint32_t pair = bfloat16_pair(first, second);
  return part == 0 ? pair : bfloat16_pair(first - first_of_pair(pair), second - second_of_pair(pair));
}
__device__ inline uint32_t bfloat16_part(BFloat16 first, BFloat16 second, int part) {
  return part == 0 ? uint32_t{second.bits} << 16 | first.bits : 0;
}
// Returns the bfloat16 part `part` of the elements of a pack, in pairs of adjacent elements.
template <class Elements>
__device__ Pack<uint32_t> part_of_pack(const Elements& pack, int part) {
  Pack<uint32_t> pairs;
#pragma unroll
  for (int p = 0; p < Pack<uint32_t>::kSize; ++p)
    pairs.values[p] = bfloat16_part(pack.values[2 * p], pack.values[2 * p + 1], part);
  return pairs;
}
__device__ inline Pack<uint32_t> part_of_pack(const Pack<BFloat16>& pack, int part) {
  return part == 0 ? std::bit_cast<Pack<uint32_t>>(pack) : Pack<uint32_t>{};
}

template <int kRows, int kColumns>
struct TensorTile {
  static constexpr int kWarpRows = kRows / 16, kWarpColumns = kTensorWarps / kWarpRows;
  static constexpr int kRowsEach = 2, kColumnsEach = kColumns / kWarpColumns / 4;
  static_assert(kRows % 16 == 0 && kTensorWarps % kWarpRows == 0 && kColumns % (8 * kWarpColumns) == 0);
  float elements[kRowsEach][kColumnsEach] = {};

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }
  __device__ static int row(int i) { return warp() % kWarpRows * 16 + lane() / 4 + 8 * i; }
  __device__ static int column(int j) { return first_column() + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  // Returns true in exactly one of the threads that share rows. Requires kWarpColumns == 1.
  __device__ static bool first_of_row() { return lane() % 4 == 0; }
  template <class Operation>
  __device__ static float row_reduce(float value) {
    static_assert(kWarpColumns == 1);
    for (int bits = 2; bits > 0; bits /= 2)
      value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // Adds the product of the fragment `left` with terms [first, first + 16) of the slice `right` of depth
  // kDepth.
  template <int kDepth>
  __device__ void add_product(const LeftFragment& left, const uint32_t* right, int first) {
    right += (first_column() + lane() / 4) * kPairStride<kDepth> + first / 2 + lane() % 4;
#pragma unroll
    for (int j = 0; j < kColumnsEach; j += 2, right += 8 * kPairStride<kDepth>)
      add_matrix_product(elements[0][j], elements[0][j + 1], elements[1][j], elements[1][j + 1], left,
                         {{right[0], right[4]}});
  }
  template <int kDepth>
  __device__ static LeftFragment fragment(const uint32_t* left, int first) {
    left += row(0) * kPairStride<kDepth> + first / 2 + lane() % 4;
    const uint32_t* const below = left + 8 * kPairStride<kDepth>;
    return {{left[0], below[0], left[4], below[4]}};
  }
  // Returns the bfloat16 part `part` of columns first to first + 15 of this tile as a left operand.
  __device__ LeftFragment left_fragment(int first, int part) const {
    static_assert(kWarpColumns == 1);
    const int j = first / 4;
    return {{bfloat16_part(elements[0][j], elements[0][j + 1], part),
             bfloat16_part(elements[1][j], elements[1][j + 1], part),
             bfloat16_part(elements[0][j + 2], elements[0][j + 3], part),
             bfloat16_part(elements[1][j + 2], elements[1][j + 3], part)}};
  }

 private:
  __device__ static int first_column() {
    return warp() / kWarpRows * (kColumns / kWarpColumns);
  }
};

// Number of 32-bit words of one part of a slice.
template <int kSize, int kDepth>
inline constexpr int kPartStride = kSize* kPairStride<kDepth>;

// Fills slice[i][d] = element(d, i) for d < kDepth and i < kSize, split into kParts bfloat16 parts. A warp
// loads 8 adjacent terms of 8 rows, which are whole memory sectors of float32 in either memory order of the
// operand.
template <int kSize, int kDepth, int kParts, class F>
__device__ void fill_rounded_slice(uint32_t* slice, F element) {
  const int thread = static_cast<int>(threadIdx.x), pair = thread % 4, i = thread / 4 % 8;
  constexpr int kGroups = kDepth / 8;
#pragma unroll 2
  for (int group = thread / kWarp; group < kGroups * kSize / 8; group += kTensorWarps) {
    const int d = group % kGroups * 8 + 2 * pair, row = group / kGroups * 8 + i;
    const float first = element(d, row), second = element(d + 1, row);
    uint32_t* const target = slice + row * kPairStride<kDepth> + d / 2;
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      target[part * kPartStride<kSize, kDepth>] = bfloat16_part(first, second, part);
  }
}

// Fills a slice like fill_rounded_slice(), with the 16-byte loads of operand.pack(), from term `begin`.
template <Lanes kLanes, int kSize, int kDepth, int kParts, class Operand>
__device__ void fill_packed_slice(uint32_t* slice, const Operand& operand, int64_t begin) {
  constexpr int kPack = Pack<BFloat16>::kSize;
  if constexpr (kLanes == Lanes::along_depth) {
    constexpr int kGroups = kDepth / kPack;
#pragma unroll 2
    for (int item = static_cast<int>(threadIdx.x); item < kGroups * kSize; item += kTensorThreads) {
      const int d = item % kGroups * kPack, row = item / kGroups;
      const auto pack = operand.pack(begin + d, row);
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        part_of_pack(pack, part)
            .store(slice + part * kPartStride<kSize, kDepth> + row * kPairStride<kDepth> + d / 2);
    }
  } else {
    constexpr int kGroups = kSize / kPack;
#pragma unroll 1
    for (int item = static_cast<int>(threadIdx.x); item < kGroups * kDepth / 2; item += kTensorThreads) {
      const int row = item % kGroups * kPack, d = item / kGroups * 2;
      const auto first = operand.pack(begin + d, row), second = operand.pack(begin + d + 1, row);
#pragma unroll
      for (int v = 0; v < kPack; ++v)
#pragma unroll
        for (int part = 0; part < kParts; ++part)
          slice[part * kPartStride<kSize, kDepth> + (row + v) * kPairStride<kDepth> + d / 2] =
              bfloat16_part(first.values[v], second.values[v], part);
    }
  }
}

// Fills a slice from term `begin` of an operand, with 16-byte loads if the operand has them.
template <Lanes kLanes, int kSize, int kDepth, int kParts, class Operand>
__device__ void fill_from(uint32_t* slice, const Operand& operand, int64_t begin) {
  if constexpr (requires { operand.is_packed(); })
    if (operand.is_packed()) return fill_packed_slice<kLanes, kSize, kDepth, kParts>(slice, operand, begin);
  fill_rounded_slice<kSize, kDepth, kParts>(slice, [&](int d, int i) { return operand(begin + d, i); });
}

// Adds the products of the fragments left(part) with terms [first, first + 16) of the slice `right`. If
// operands have two parts, the product of the two remainders is omitted.
template <int kDepth, int kParts, int kRows, int kColumns, class Left>
__device__ void add_parts(TensorTile<kRows, kColumns>& tile, Left left, const uint32_t* right, int first) {
#pragma unroll
  for (int part = kParts - 1; part >= 0; --part) {
    const LeftFragment fragment = left(part);
#pragma unroll
    for (int other = kParts - 1 - part; other >= 0; --other)
      tile.template add_product<kDepth>(fragment, right + other * kPartStride<kColumns, kDepth>, first);
  }
}

template <Lanes kLeft, Lanes kRight, int kParts, int kRows, int kColumns, class Left, class Right,
          class EachSlice = NoAction>
__device__ void add_products(TensorTile<kRows, kColumns>& tile, const TensorMemory<kParts>& memory,
                             int64_t depth, Left left, Right right, EachSlice each_slice = {}) {
  constexpr int kStride = kPartStride<kRows, kSliceDepth>;
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_from<kLeft, kRows, kSliceDepth, kParts>(memory.left, left, begin);
    fill_from<kRight, kColumns, kSliceDepth, kParts>(memory.right, right, begin);
    __syncthreads();
    const int count = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
#pragma unroll
    for (int first = 0; first < kSliceDepth; first += 16)
      if (first < count)
        add_parts<kSliceDepth, kParts>(
            tile,
            [&](int part) {
              return tile.template fragment<kSliceDepth>(memory.left + part * kStride, first);
            },
            memory.right, first);
    each_slice(begin, count, [&](int d, int row) {
      float sum = 0;
      for (int part = 0; part < kParts; ++part) {
        const uint32_t pair = memory.left[part * kStride + row * kPairStride<kSliceDepth> + d / 2];
        sum += d % 2 ? second_of_pair(pair) : first_of_pair(pair);
      }
      return sum;
    });
  }
}

template <int kParts, int kRows, int kColumns, class Right>
__device__ void add_products_of(TensorTile<kRows, kColumns>& tile, const TensorTile<kRows, kTokens>& weights,
                                const TensorMemory<kParts>& memory, Right right) {
  static_assert(kParts * kPartStride<kColumns, kTokens> * sizeof(uint32_t) <=
                TensorMemory<kParts>::kSliceBytes);
  __syncthreads();
  fill_from<Lanes::along_tile, kColumns, kTokens, kParts>(memory.left, right, 0);
  __syncthreads();
#pragma unroll
  for (int first = 0; first < kTokens; first += 16)
    add_parts<kTokens, kParts>(
        tile, [&](int part) { return weights.left_fragment(first, part); }, memory.left, first);
}

template <int kParts>
struct TensorTilesOf {
  using Value = float;
  using Stored = BFloat16;
  using Memory = TensorMemory<kParts>;
  static constexpr int kThreads = kTensorThreads;
  template <int kRows, int kColumns>
  using Tile = TensorTile<kRows, kColumns>;
};
using TensorTiles = TensorTilesOf<1>;
// Tiles whose operands have two parts, with three products each, for sums in which terms cancel.
using SplitTensorTiles = TensorTilesOf<2>;

// The tiles for tensors of S: TensorTiles for BFloat16, otherwise PlainTiles.
template <class S>
using TilesFor = std::conditional_t<std::is_same_v<S, BFloat16>, TensorTiles, PlainTiles<S>>;

}  // namespace tapeformer::cuda
