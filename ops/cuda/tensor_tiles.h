// Tiles that are multiplied on the tensor cores: factors rounded to bfloat16, sums in float32. A warp has 16
// rows of a tile and multiplies 16 x 16 x 8 elements at a time.
#pragma once

#include <bit>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

inline constexpr int kTensorWarps = 4;
inline constexpr int kTensorThreads = kTensorWarps * kWarp;
// Pairs of terms from row to row of a slice: lanes that read a fragment, and those that fill, meet different
// banks.
template <int kDepth>
inline constexpr int kPairStride = kDepth / 2 + 4;

struct TensorMemory {
  static constexpr size_t kSliceBytes = 2 * kTokens * kPairStride<kSliceDepth> * sizeof(uint32_t);
  static constexpr size_t kBytes = kSliceBytes;  // weights stay in registers
  uint32_t *left, *right;                        // [row or column][term], in pairs of neighbouring terms

  __device__ TensorMemory()
      : left(dynamic_shared<uint32_t>()), right(left + kTokens * kPairStride<kSliceDepth>) {}
};

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
  // One of the threads that share rows, which are those of a tile as high as the block's warps.
  __device__ static bool first_of_row() { return lane() % 4 == 0; }
  template <class Operation>
  __device__ static float row_reduce(float value) {
    static_assert(kWarpColumns == 1);
    for (int bits = 2; bits > 0; bits /= 2)
      value = Operation::of(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // += left right, 16 terms of slices of kDepth that begin at `first`.
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
  // Of the tile itself, of columns first to first + 15, as a left factor.
  __device__ LeftFragment fragment(int first) const {
    const int j = first / 4;
    return {{bfloat16_pair(elements[0][j], elements[0][j + 1]),
             bfloat16_pair(elements[1][j], elements[1][j + 1]),
             bfloat16_pair(elements[0][j + 2], elements[0][j + 3]),
             bfloat16_pair(elements[1][j + 2], elements[1][j + 3])}};
  }

 private:
  __device__ static int first_column() {
    return warp() / kWarpRows * (kColumns / kWarpColumns);
  }
};

// slice[i][d] = element(d, i) for d < kDepth, i < kSize. A warp takes 8 neighbouring terms of 8 rows: 16
// bytes or more that lie together, whichever of the two they lie along.
template <int kSize, int kDepth, class F>
__device__ void fill_rounded_slice(uint32_t* slice, F element) {
  const int thread = static_cast<int>(threadIdx.x), pair = thread % 4, i = thread / 4 % 8;
  constexpr int kGroups = kDepth / 8;
#pragma unroll 2
  for (int part = thread / kWarp; part < kGroups * kSize / 8; part += kTensorWarps) {
    const int d = part % kGroups * 8 + 2 * pair, row = part / kGroups * 8 + i;
    slice[row * kPairStride<kDepth> + d / 2] = bfloat16_pair(element(d, row), element(d + 1, row));
  }
}

template <Lanes, Lanes, int kRows, int kColumns, class Left, class Right, class EachSlice = NothingMore>
__device__ void add_products(TensorTile<kRows, kColumns>& tile, const TensorMemory& memory, int64_t depth,
                             Left left, Right right, EachSlice each_slice = {}) {
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_rounded_slice<kRows, kSliceDepth>(memory.left, [&](int d, int i) { return left(begin + d, i); });
    fill_rounded_slice<kColumns, kSliceDepth>(memory.right,
                                              [&](int d, int i) { return right(begin + d, i); });
    __syncthreads();
    const int count = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
#pragma unroll
    for (int first = 0; first < kSliceDepth; first += 16)
      if (first < count)
        tile.template add_product<kSliceDepth>(tile.template fragment<kSliceDepth>(memory.left, first),
                                               memory.right, first);
    each_slice(begin, count, [&](int d, int row) {
      const uint32_t pair = memory.left[row * kPairStride<kSliceDepth> + d / 2];
      return std::bit_cast<float>(d % 2 ? pair & 0xFFFF0000 : pair << 16);
    });
  }
}

template <int kRows, int kColumns, class Right>
__device__ void add_products_of(TensorTile<kRows, kColumns>& tile, const TensorTile<kRows, kTokens>& weights,
                                const TensorMemory& memory, Right right) {
  static_assert(kColumns * kPairStride<kTokens> * sizeof(uint32_t) <= TensorMemory::kSliceBytes);
  __syncthreads();
  fill_rounded_slice<kColumns, kTokens>(memory.left, right);
  __syncthreads();
#pragma unroll
  for (int first = 0; first < kTokens; first += 16)
    tile.template add_product<kTokens>(weights.fragment(first), memory.left, first);
}

struct TensorTiles {
  using Value = float;
  using Stored = BFloat16;
  using Memory = TensorMemory;
  static constexpr int kThreads = kTensorThreads;
  template <int kRows, int kColumns>
  using Tile = TensorTile<kRows, kColumns>;
};

// The kind of tiles for tensors of S.
template <class S>
using TilesFor = std::conditional_t<std::is_same_v<S, BFloat16>, TensorTiles, PlainTiles<S>>;

}  // namespace tapeformer::cuda
