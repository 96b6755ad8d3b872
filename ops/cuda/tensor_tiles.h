// Tiles that are multiplied on tensor cores, with float32 sums. Each element of an operand is rounded to
// bfloat16, or is split into two bfloat16 numbers (its parts) whose sum approximates the element. A warp
// holds 16 rows of a tile. An instruction multiplies a 16 x 16 matrix by a 16 x 8 matrix.
#pragma once

#include <bit>

#include "core/cuda/matrix_product.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

inline constexpr int kTensorCoreWarps = 4;  // number of warps per block
inline constexpr int kTensorCoreThreads = kTensorCoreWarps * kWarpSize;
// Stride between the lines of a slice, in pairs of bfloat16 numbers. Each line has kElements bfloat16
// numbers. The padding of four pairs keeps lines aligned for load_matrices(), and avoids bank conflicts in
// load_matrices().
template <int kElements>
inline constexpr int kPaddedLineStride = kElements / 2 + 4;

// The layout of a slice of an operand in shared memory. A left operand has kSize rows, and a right operand
// has kSize columns. The slice contains kDepth elements of each row or column, and is stored in lines:
//   along_depth   A line contains the kDepth elements of one row or column.
//   along_tile    A line contains one element of each row or column.
template <OperandLayout kLayout, int kSize, int kDepth>
struct SliceLayout {
  static constexpr bool kIsAlongDepth = kLayout == kAlongDepth;
  static constexpr int kLines = kIsAlongDepth ? kSize : kDepth;
  static constexpr int kLineElements = kIsAlongDepth ? kDepth : kSize;
  static constexpr int kLineStride = kPaddedLineStride<kLineElements>;
  static constexpr int kPartStride = kLines * kLineStride;  // stride between the parts of a slice, in pairs

  // Returns the offset, in pairs, of the pair that contains element `element` of a line.
  __device__ static constexpr int offset(int line, int element) { return line * kLineStride + element / 2; }
  // Loads elements [first, first + 16) of the rows or columns [index, index + 16). `pairs` receives the
  // contents of one LeftFragment if kIsLeft is true, otherwise of two RightFragments.
  template <bool kIsLeft>
  __device__ static void load(const uint32_t* slice, int index, int first, uint32_t (&pairs)[4]) {
    const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
    // load_matrices() loads four 8 x 8 matrices. If kSecondMatrixIsBelow is true, the second matrix is 8
    // lines below the first matrix. If kSecondMatrixIsBelow is false, the second matrix is 8 elements to the
    // right of the first matrix.
    constexpr bool kSecondMatrixIsBelow = kIsLeft == kIsAlongDepth;
    const int line = kSecondMatrixIsBelow ? lane % 16 : lane % 8 + lane / 16 * 8;
    const int element = kSecondMatrixIsBelow ? lane / 16 * 8 : lane / 8 % 2 * 8;
    slice += offset(line, element);
    load_matrices<!kIsAlongDepth>(slice + (kIsAlongDepth ? offset(index, first) : offset(first, index)),
                                  pairs);
  }
};

// The dynamic shared memory of tensor tiles: a slice of each operand. Each element is the sum of kParts
// bfloat16 numbers. Two parts hold 16 of the 24 mantissa bits of a float32.
template <int kParts>
struct TensorCoreMemory {
  static constexpr size_t kSliceBytes =
      2 * kParts * kTileTokens * kPaddedLineStride<kSliceDepth> * sizeof(uint32_t);
  // add_tile_product() needs no additional memory, because its weights stay in registers.
  static constexpr size_t kBytes = kSliceBytes;
  uint32_t *left, *right;  // [part][line][pair], with the layout SliceLayout

  __device__ TensorCoreMemory()
      : left(get_dynamic_shared_memory<uint32_t>()),
        right(left + kParts * kTileTokens * kPaddedLineStride<kSliceDepth>) {}
};

// Returns part `part` of two numbers as a pair of bfloat16 numbers. Part 0 is the number rounded to bfloat16.
// Part 1 is the rounding error of part 0, rounded to bfloat16.
__device__ inline uint32_t extract_bfloat16_part(float first, float second, int part) {
  const uint32_t pair = pack_bfloat16_pair(first, second);
  return part == 0 ? pair : pack_bfloat16_pair(first - unpack_first(pair), second - unpack_second(pair));
}
__device__ inline uint32_t extract_bfloat16_part(BFloat16 first, BFloat16 second, int part) {
  return part == 0 ? uint32_t{second.bits} << 16 | first.bits : 0;
}
// Returns part `part` of the 8 elements of `pack`, as 4 pairs of adjacent elements.
template <class Elements>
__device__ Pack<uint32_t> extract_pack_part(const Elements& pack, int part) {
  Pack<uint32_t> pairs;
#pragma unroll
  for (int p = 0; p < Pack<uint32_t>::kSize; ++p)
    pairs.values[p] = extract_bfloat16_part(pack.values[2 * p], pack.values[2 * p + 1], part);
  return pairs;
}
__device__ inline Pack<uint32_t> extract_pack_part(const Pack<BFloat16>& pack, int part) {
  return part == 0 ? std::bit_cast<Pack<uint32_t>>(pack) : Pack<uint32_t>{};
}

// The elements of a (kRows, kColumns) tile that one thread holds. The warps of a block form a grid of
// kWarpsAlongRows x kWarpsAlongColumns warps over the tile.
template <int kRows, int kColumns>
struct TensorCoreTile {
  static constexpr int kWarpsAlongRows = kRows / 16, kWarpsAlongColumns = kTensorCoreWarps / kWarpsAlongRows;
  static constexpr int kRowsPerThread = 2, kColumnsPerThread = kColumns / kWarpsAlongColumns / 4;
  static_assert(kRows % 16 == 0 && kTensorCoreWarps % kWarpsAlongRows == 0 &&
                kColumns % (8 * kWarpsAlongColumns) == 0);
  float elements[kRowsPerThread][kColumnsPerThread] = {};

  __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ static int row(int i) { return warp() % kWarpsAlongRows * 16 + lane() / 4 + 8 * i; }
  __device__ static int column(int j) { return first_column() + j / 2 * 8 + lane() % 4 * 2 + j % 2; }
  // Returns column(j) - column(0).
  __device__ static constexpr int column_offset(int j) { return j / 2 * 8 + j % 2; }
  // Returns true in exactly one of the threads that hold elements of the same rows. Requires
  // kWarpsAlongColumns == 1.
  __device__ static bool is_row_leader() { return lane() % 4 == 0; }
  // Reduces `value` over the threads that hold elements of the same rows. Each of these threads gets the
  // result.
  template <class Operation>
  __device__ static float reduce_row(float value) {
    static_assert(kWarpsAlongColumns == 1);
    for (int bits = 2; bits > 0; bits /= 2)
      value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // Adds the product of the fragment `left` and rows [first, first + 16) of the right operand to this tile.
  // `right` is a slice of the right operand.
  template <class Layout>
  __device__ void add_product(const LeftFragment& left, const uint32_t* right, int first) {
    static_assert(kColumnsPerThread % 4 == 0);
#pragma unroll
    for (int j = 0; j < kColumnsPerThread; j += 4) {
      uint32_t pairs[4];
      Layout::template load<false>(right, first_column() + 4 * j, first, pairs);
#pragma unroll
      for (int n = 0; n < 4; n += 2)
        add_matrix_product(elements[0][j + n], elements[0][j + n + 1], elements[1][j + n],
                           elements[1][j + n + 1], left, {{pairs[n], pairs[n + 1]}});
    }
  }
  // Returns columns [first, first + 16) of the left operand for add_product(), in the rows of the calling
  // warp. `left` is a slice of the left operand.
  template <class Layout>
  __device__ static LeftFragment load_fragment(const uint32_t* left, int first) {
    LeftFragment fragment;
    Layout::template load<true>(left, warp() % kWarpsAlongRows * 16, first, fragment.pairs);
    return fragment;
  }
  // Returns columns [first, first + 16) of this tile as a left operand of add_product(). Each element of the
  // tile is replaced by part `part` of the element (extract_bfloat16_part()).
  __device__ LeftFragment make_left_fragment(int first, int part) const {
    static_assert(kWarpsAlongColumns == 1);
    const int j = first / 4;
    return {{extract_bfloat16_part(elements[0][j], elements[0][j + 1], part),
             extract_bfloat16_part(elements[1][j], elements[1][j + 1], part),
             extract_bfloat16_part(elements[0][j + 2], elements[0][j + 3], part),
             extract_bfloat16_part(elements[1][j + 2], elements[1][j + 3], part)}};
  }

 private:
  __device__ static int first_column() {
    return warp() / kWarpsAlongRows * (kColumns / kWarpsAlongColumns);
  }
};

// Fills a slice of an operand of a matrix product. element(d, i) returns the element at index d of the summed
// dimension, in row or column i of the tile. Each element is stored as kParts bfloat16 numbers whose sum
// approximates the element.
template <class Layout, int kParts, class F>
__device__ void fill_rounded_slice(uint32_t* slice, F element) {
  constexpr int kPairsPerLine = Layout::kLineElements / 2;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < Layout::kLines * kPairsPerLine; i += kTensorCoreThreads) {
    const int line = i / kPairsPerLine, column = i % kPairsPerLine * 2;
    const float first = Layout::kIsAlongDepth ? element(column, line) : element(line, column);
    const float second = Layout::kIsAlongDepth ? element(column + 1, line) : element(line, column + 1);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      slice[part * Layout::kPartStride + Layout::offset(line, column)] =
          extract_bfloat16_part(first, second, part);
  }
}

// Equivalent to fill_rounded_slice() with element(d, i) = operand(begin + d, i), but loads 8 elements at a
// time.
template <class Layout, int kParts, class Operand>
__device__ void fill_packed_slice(uint32_t* slice, const Operand& operand, int64_t begin) {
  constexpr int kPacksPerLine = Layout::kLineElements / Pack<BFloat16>::kSize;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < Layout::kLines * kPacksPerLine; i += kTensorCoreThreads) {
    const int line = i / kPacksPerLine, column = i % kPacksPerLine * Pack<BFloat16>::kSize;
    const auto pack = Layout::kIsAlongDepth ? operand.load_pack(begin + column, line)
                                            : operand.load_pack(begin + line, column);
#pragma unroll
    for (int part = 0; part < kParts; ++part)
      extract_pack_part(pack, part).store(slice + part * Layout::kPartStride + Layout::offset(line, column));
  }
}

// Fills a slice with the elements operand(begin + d, i). If operand.can_load_pack() exists and returns true,
// uses 16-byte loads.
template <class Layout, int kParts, class Operand>
__device__ void fill_operand_slice(uint32_t* slice, const Operand& operand, int64_t begin) {
  if constexpr (requires { operand.can_load_pack(); })
    if (operand.can_load_pack()) return fill_packed_slice<Layout, kParts>(slice, operand, begin);
  fill_rounded_slice<Layout, kParts>(slice, [&](int d, int i) { return operand(begin + d, i); });
}

// Adds to `tile` the product of 16 columns of the left operand and rows [first, first + 16) of the right
// operand. left(part) returns a fragment with one part of the left operand, and `right` is a slice of the
// right operand. The product of part 1 of the left operand and part 1 of the right operand is small, and is
// omitted.
template <class Layout, int kLeftParts, int kRightParts, int kRows, int kColumns, class Left>
__device__ void add_part_products(TensorCoreTile<kRows, kColumns>& tile, Left left, const uint32_t* right,
                                  int first) {
#pragma unroll
  for (int left_part = kLeftParts - 1; left_part >= 0; --left_part) {
    const LeftFragment fragment = left(left_part);
#pragma unroll
    for (int right_part = kRightParts - 1; right_part >= 0; --right_part)
      if (left_part == 0 || right_part == 0)
        tile.template add_product<Layout>(fragment, right + right_part * Layout::kPartStride, first);
  }
}

// Overload of add_products() (tile_product.h) for tensor tiles.
template <OperandLayout kLeftLayout, OperandLayout kRightLayout, int kParts, int kRows, int kColumns,
          class Left, class Right, class SliceVisitor = NoOpSliceVisitor>
__device__ void add_products(TensorCoreTile<kRows, kColumns>& tile, const TensorCoreMemory<kParts>& memory,
                             int64_t depth, Left left, Right right, SliceVisitor visit_slice = {}) {
  using LeftLayout = SliceLayout<kLeftLayout, kRows, kSliceDepth>;
  using RightLayout = SliceLayout<kRightLayout, kColumns, kSliceDepth>;
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_operand_slice<LeftLayout, kParts>(memory.left, left, begin);
    fill_operand_slice<RightLayout, kParts>(memory.right, right, begin);
    __syncthreads();
    const int slice_depth = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
#pragma unroll
    for (int first = 0; first < kSliceDepth; first += 16)
      if (first < slice_depth)
        add_part_products<RightLayout, kParts, kParts>(
            tile,
            [&](int part) {
              return tile.template load_fragment<LeftLayout>(memory.left + part * LeftLayout::kPartStride,
                                                             first);
            },
            memory.right, first);
    visit_slice(begin, slice_depth, [&](int d, int row) {
      const int line = LeftLayout::kIsAlongDepth ? row : d, column = LeftLayout::kIsAlongDepth ? d : row;
      float sum = 0;
      for (int part = 0; part < kParts; ++part) {
        const uint32_t pair = memory.left[part * LeftLayout::kPartStride + LeftLayout::offset(line, column)];
        sum += column % 2 ? unpack_second(pair) : unpack_first(pair);
      }
      return sum;
    });
  }
}

// Overload of add_tile_product() (tile_product.h) for tensor tiles.
template <int kParts, int kRows, int kColumns, int kTerms, class Right>
__device__ void add_tile_product(TensorCoreTile<kRows, kColumns>& tile,
                                 const TensorCoreTile<kRows, kTerms>& weights,
                                 const TensorCoreMemory<kParts>& memory, Right right) {
  using Layout = SliceLayout<kAlongTile, kColumns, kTerms>;
  static_assert(kParts * Layout::kPartStride * sizeof(uint32_t) <= TensorCoreMemory<kParts>::kSliceBytes);
  __syncthreads();
  fill_operand_slice<Layout, kParts>(memory.left, right, 0);
  __syncthreads();
#pragma unroll
  for (int first = 0; first < kTerms; first += 16)
    add_part_products<Layout, kParts, kParts>(
        tile, [&](int part) { return weights.make_left_fragment(first, part); }, memory.left, first);
}

// Tiles that are multiplied on tensor cores, with operands of kParts parts. The comment of tile_product.h
// describes the members.
template <int kParts>
struct SplitTensorCoreTiles {
  using Value = float;
  using Stored = BFloat16;
  using Memory = TensorCoreMemory<kParts>;
  static constexpr int kThreads = kTensorCoreThreads;
  template <int kRows, int kColumns>
  using Tile = TensorCoreTile<kRows, kColumns>;
};
using TensorCoreTiles = SplitTensorCoreTiles<1>;
// Tiles for sums of large numbers that almost cancel. Each element of an operand is the sum of two bfloat16
// parts.
using SplitTensorTiles = SplitTensorCoreTiles<2>;

// The tiles for tensors with elements of type S.
template <class S>
using TilesFor = std::conditional_t<std::is_same_v<S, BFloat16>, TensorCoreTiles, SimtTiles<S>>;

}  // namespace tapeformer::cuda
