// Tiles that are multiplied on tensor cores: operands rounded to bfloat16, or to a sum of two bfloat16
// numbers, with float32 sums. A warp holds 16 rows of a tile and multiplies 16 x 16 x 8 elements per
// instruction.
#pragma once

#include <bit>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

inline constexpr int kTensorWarps = 4;
inline constexpr int kTensorThreads = kTensorWarps * kWarpSize;
// Stride of a line of a slice with kElements bfloat16 numbers, in pairs. The padding of four pairs keeps
// lines aligned for load_matrices() and avoids bank conflicts when matrices are loaded.
template <int kElements>
inline constexpr int kPairStride = kElements / 2 + 4;

// A slice of an operand in shared memory, in the memory order of the operand: a line holds kDepth terms of a
// row (Lanes::along_depth), or kSize rows or columns of a term (Lanes::along_tile).
template <Lanes kLanes, int kSize, int kDepth>
struct SliceLayout {
  static constexpr bool kAlongDepth = kLanes == Lanes::along_depth;
  static constexpr int kLines = kAlongDepth ? kSize : kDepth;
  static constexpr int kLineElements = kAlongDepth ? kDepth : kSize;
  static constexpr int kStride = kPairStride<kLineElements>;
  static constexpr int kPartStride = kLines * kStride;  // number of pairs of one part

  // Returns the offset of a line and an element in pairs.
  __device__ static constexpr int offset(int line, int element) { return line * kStride + element / 2; }
  // Loads the elements of terms [first, first + 16) and rows or columns [index, index + 16): the pairs of a
  // LeftFragment if kIsLeft is true, otherwise of two RightFragments.
  template <bool kIsLeft>
  __device__ static void load(const uint32_t* slice, int index, int first, uint32_t (&pairs)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    // The second matrix follows the first in the next 8 lines, or in the next 8 elements of the same lines.
    constexpr bool kNextLines = kIsLeft == kAlongDepth;
    const int line = kNextLines ? lane % 16 : lane % 8 + lane / 16 * 8;
    const int element = kNextLines ? lane / 16 * 8 : lane / 8 % 2 * 8;
    slice += offset(line, element);
    load_matrices<!kAlongDepth>(slice + (kAlongDepth ? offset(index, first) : offset(first, index)), pairs);
  }
};

// An operand is a sum of kParts bfloat16 numbers. Two parts hold 16 of the 24 mantissa bits of a float32.
template <int kParts>
struct TensorMemory {
  static constexpr size_t kSliceBytes = 2 * kParts * kTokens * kPairStride<kSliceDepth> * sizeof(uint32_t);
  static constexpr size_t kBytes = kSliceBytes;  // equals kSliceBytes, because weights stay in registers
  uint32_t *left, *right;                        // [part][line][pair], with the layout SliceLayout

  __device__ TensorMemory()
      : left(dynamic_shared<uint32_t>()), right(left + kParts * kTokens * kPairStride<kSliceDepth>) {}
};

// Returns a pair of bfloat16 numbers. If `part` is 0, they are `first` and `second` rounded; if `part` is 1,
// they are the rounded remainders.
__device__ inline uint32_t bfloat16_part(float first, float second, int part) {
  const uint32_t pair = pack_bfloat16_pair(first, second);
  return part == 0 ? pair : pack_bfloat16_pair(first - unpack_first(pair), second - unpack_second(pair));
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

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ static int row(int i) { return warp() % kWarpRows * 16 + lane() / 4 + 8 * i; }
  __device__ static int column(int j) { return first_column() + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  __device__ static constexpr int column_offset(int j) { return j / 2 * 8 + j % 2; }
  // Returns true in exactly one of the threads that share rows. Requires kWarpColumns == 1.
  __device__ static bool first_of_row() { return lane() % 4 == 0; }
  template <class Operation>
  __device__ static float row_reduce(float value) {
    static_assert(kWarpColumns == 1);
    for (int bits = 2; bits > 0; bits /= 2)
      value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // Adds the product of the fragment `left` with terms [first, first + 16) of the slice `right`.
  template <class Layout>
  __device__ void add_product(const LeftFragment& left, const uint32_t* right, int first) {
    static_assert(kColumnsEach % 4 == 0);
#pragma unroll
    for (int j = 0; j < kColumnsEach; j += 4) {
      uint32_t pairs[4];
      Layout::template load<false>(right, first_column() + 4 * j, first, pairs);
#pragma unroll
      for (int n = 0; n < 4; n += 2)
        add_matrix_product(elements[0][j + n], elements[0][j + n + 1], elements[1][j + n],
                           elements[1][j + n + 1], left, {{pairs[n], pairs[n + 1]}});
    }
  }
  // Returns the rows of this thread's warp and terms [first, first + 16) of the slice `left`.
  template <class Layout>
  __device__ static LeftFragment fragment(const uint32_t* left, int first) {
    LeftFragment fragment;
    Layout::template load<true>(left, warp() % kWarpRows * 16, first, fragment.pairs);
    return fragment;
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

// Fills a slice with element(d, i) for the terms d and the rows or columns i, split into kParts bfloat16
// parts.
template <class Layout, int kParts, class F>
__device__ void fill_rounded_slice(uint32_t* slice, F element) {
  constexpr int kPairs = Layout::kLineElements / 2;
#pragma unroll 2
  for (int item = static_cast<int>(threadIdx.x); item < Layout::kLines * kPairs; item += kTensorThreads) {
    const int line = item / kPairs, at = item % kPairs * 2;
    const float first = Layout::kAlongDepth ? element(at, line) : element(line, at);
    const float second = Layout::kAlongDepth ? element(at + 1, line) : element(line, at + 1);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      slice[part * Layout::kPartStride + Layout::offset(line, at)] = bfloat16_part(first, second, part);
  }
}

// Fills a slice like fill_rounded_slice(), with the 16-byte loads of operand.pack(), from term `begin`.
template <class Layout, int kParts, class Operand>
__device__ void fill_packed_slice(uint32_t* slice, const Operand& operand, int64_t begin) {
  constexpr int kPacks = Layout::kLineElements / Pack<BFloat16>::kSize;
#pragma unroll 1
  for (int item = static_cast<int>(threadIdx.x); item < Layout::kLines * kPacks; item += kTensorThreads) {
    const int line = item / kPacks, at = item % kPacks * Pack<BFloat16>::kSize;
    const auto pack = Layout::kAlongDepth ? operand.pack(begin + at, line) : operand.pack(begin + line, at);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      part_of_pack(pack, part).store(slice + part * Layout::kPartStride + Layout::offset(line, at));
  }
}

// Fills a slice from term `begin` of an operand, with 16-byte loads if the operand has them.
template <class Layout, int kParts, class Operand>
__device__ void fill_from(uint32_t* slice, const Operand& operand, int64_t begin) {
  if constexpr (requires { operand.is_packed(); })
    if (operand.is_packed()) return fill_packed_slice<Layout, kParts>(slice, operand, begin);
  fill_rounded_slice<Layout, kParts>(slice, [&](int d, int i) { return operand(begin + d, i); });
}

// Adds the products of the fragments left(part) with terms [first, first + 16) of the slice `right`. If
// operands have two parts, the product of the two remainders is omitted.
template <class Layout, int kParts, int kRows, int kColumns, class Left>
__device__ void add_parts(TensorTile<kRows, kColumns>& tile, Left left, const uint32_t* right, int first) {
#pragma unroll
  for (int part = kParts - 1; part >= 0; --part) {
    const LeftFragment fragment = left(part);
#pragma unroll
    for (int other = kParts - 1 - part; other >= 0; --other)
      tile.template add_product<Layout>(fragment, right + other * Layout::kPartStride, first);
  }
}

template <Lanes kLeft, Lanes kRight, int kParts, int kRows, int kColumns, class Left, class Right,
          class EachSlice = NoAction>
__device__ void add_products(TensorTile<kRows, kColumns>& tile, const TensorMemory<kParts>& memory,
                             int64_t depth, Left left, Right right, EachSlice each_slice = {}) {
  using LeftLayout = SliceLayout<kLeft, kRows, kSliceDepth>;
  using RightLayout = SliceLayout<kRight, kColumns, kSliceDepth>;
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_from<LeftLayout, kParts>(memory.left, left, begin);
    fill_from<RightLayout, kParts>(memory.right, right, begin);
    __syncthreads();
    const int count = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
#pragma unroll
    for (int first = 0; first < kSliceDepth; first += 16)
      if (first < count)
        add_parts<RightLayout, kParts>(
            tile,
            [&](int part) {
              return tile.template fragment<LeftLayout>(memory.left + part * LeftLayout::kPartStride, first);
            },
            memory.right, first);
    each_slice(begin, count, [&](int d, int row) {
      const int line = LeftLayout::kAlongDepth ? row : d, at = LeftLayout::kAlongDepth ? d : row;
      float sum = 0;
      for (int part = 0; part < kParts; ++part) {
        const uint32_t pair = memory.left[part * LeftLayout::kPartStride + LeftLayout::offset(line, at)];
        sum += at % 2 ? unpack_second(pair) : unpack_first(pair);
      }
      return sum;
    });
  }
}

template <int kParts, int kRows, int kColumns, int kTerms, class Right>
__device__ void add_products_of(TensorTile<kRows, kColumns>& tile, const TensorTile<kRows, kTerms>& weights,
                                const TensorMemory<kParts>& memory, Right right) {
  using Layout = SliceLayout<Lanes::along_tile, kColumns, kTerms>;
  static_assert(kParts * Layout::kPartStride * sizeof(uint32_t) <= TensorMemory<kParts>::kSliceBytes);
  __syncthreads();
  fill_from<Layout, kParts>(memory.left, right, 0);
  __syncthreads();
#pragma unroll
  for (int first = 0; first < kTerms; first += 16)
    add_parts<Layout, kParts>(
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
