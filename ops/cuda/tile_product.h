// Matrix products that a thread block computes for the attention kernels. An operand is a function object
// that returns the elements of a matrix. Slices of both operands are copied to shared memory, and each thread
// accumulates a few elements of the product in registers.
//
// The template parameter `Tiles` of a kernel selects how tiles are multiplied. SimtTiles does not use tensor
// cores, and TensorCoreTiles (tensor_tiles.h) uses tensor cores. SimtTiles and TensorCoreTiles have these
// members:
//   Value      type of the elements in registers
//   Stored     type of the elements in global memory
//   kThreads   number of threads per block
//   Memory     dynamic shared memory. A kernel needs Memory::kBytes bytes if it calls add_tile_product(),
//              otherwise Memory::kSliceBytes bytes.
//   Tile<kRows, kColumns>   the elements of a tile that one thread holds: elements[i][j] is the element in
//              row(i) and column(j)
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"
#include "ops/kernels/attention.h"

namespace tapeformer::cuda {

inline constexpr int kTileThreads = 256;
// The threads of a block form a grid of kTileEdgeThreads x kTileEdgeThreads threads over a tile.
inline constexpr int kTileEdgeThreads = 16;
inline constexpr int kTileTokens = 64;  // number of queries or keys of a tile
inline constexpr int kSliceDepth = 32;  // size of the summed dimension in a slice

// Row stride of a tile or a slice with kSize columns in shared memory. The padding of four elements keeps
// rows aligned for vector loads, and avoids bank conflicts when slices are filled.
template <int kSize>
inline constexpr int kTileStride = kSize + 4;
template <int kSize>
inline constexpr int kSliceSize = kSliceDepth* kTileStride<kSize>;

// The dynamic shared memory of SimtTiles: a slice of each operand, and the weights of add_tile_product().
template <class T>
struct SimtMemory {
  static constexpr size_t kSliceBytes = 2 * kSliceSize<kTileTokens> * sizeof(T);
  static constexpr size_t kBytes = kSliceBytes + kTileTokens * kTileStride<kTileTokens> * sizeof(T);
  T *left, *right;  // slices: left[d][row] and right[d][column]
  T* weights;       // weights[column][row]

  __device__ SimtMemory()
      : left(get_dynamic_shared_memory<T>()),
        right(left + kSliceSize<kTileTokens>),
        weights(right + kSliceSize<kTileTokens>) {}
};

// The elements of a (kRows, kColumns) tile that one thread holds.
template <class T, int kRows, int kColumns>
struct SimtTile {
  static constexpr int kRowsPerThread = kRows / kTileEdgeThreads,
                       kColumnsPerThread = kColumns / kTileEdgeThreads;
  static constexpr int kLeftStride = kTileStride<kRows>, kRightStride = kTileStride<kColumns>;
  T elements[kRowsPerThread][kColumnsPerThread] = {};

  __device__ static int row(int i) {
    return static_cast<int>(threadIdx.x) / kTileEdgeThreads * kRowsPerThread + i;
  }
  __device__ static int column(int j) {
    return static_cast<int>(threadIdx.x) % kTileEdgeThreads * kColumnsPerThread + j;
  }
  // Returns column(j) - column(0).
  __device__ static constexpr int column_offset(int j) { return j; }
  // Returns true in exactly one of the threads that hold elements of the same rows.
  __device__ static bool is_row_leader() { return threadIdx.x % kTileEdgeThreads == 0; }
  // Reduces `value` over the threads that hold elements of the same rows. Each of these threads gets the
  // result.
  template <class Operation>
  __device__ static T reduce_row(T value) {
    for (int bits = kTileEdgeThreads / 2; bits > 0; bits /= 2)
      value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // Adds to element (row, column) the sum of left[d][row] * right[d][column] over d < depth.
  __device__ void add_product(const T* left, const T* right, int depth) {
    left += row(0);
    right += column(0);
#pragma unroll(kUnrollFactor <T, 8>)
    for (int d = 0; d < depth; ++d, left += kLeftStride, right += kRightStride) {
      const auto a = *reinterpret_cast<const Vector<kRowsPerThread>*>(left);
      const auto b = *reinterpret_cast<const Vector<kColumnsPerThread>*>(right);
#pragma unroll(kUnrollFactor <T>)
      for (int i = 0; i < kRowsPerThread; ++i)
#pragma unroll(kUnrollFactor <T>)
        for (int j = 0; j < kColumnsPerThread; ++j) elements[i][j] += a.values[i] * b.values[j];
    }
  }
  // Writes element (row, column) to target[column][row], which is the layout of the operand `left` of
  // add_product().
  __device__ void store_transposed(T* target) const {
#pragma unroll(kUnrollFactor <T>)
    for (int j = 0; j < kColumnsPerThread; ++j) {
      Vector<kRowsPerThread> vector;
#pragma unroll(kUnrollFactor <T>)
      for (int i = 0; i < kRowsPerThread; ++i) vector.values[i] = elements[i][j];
      *reinterpret_cast<Vector<kRowsPerThread>*>(target + column(j) * kLeftStride + row(0)) = vector;
    }
  }

 private:
  // An array of adjacent elements. One instruction loads or stores an array of at most 16 bytes.
  template <int kCount>
  struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Vector {
    T values[kCount];
  };
};

// Specifies which elements of an operand are adjacent in memory:
//   along_depth   the elements of a row (left operand) or a column (right operand)
//   along_tile    the elements of a column (left operand) or a row (right operand)
// Slices are loaded in the order of the operand layout, so that the lanes of a warp read adjacent elements.
enum class OperandLayout { along_depth, along_tile };
inline constexpr OperandLayout kAlongDepth = OperandLayout::along_depth,
                               kAlongTile = OperandLayout::along_tile;

// Sets slice[d][i] = element(d, i) for d < kSliceDepth and i < kSize. All threads of the block call the
// function.
template <OperandLayout kLayout, int kSize, class T, class F>
__device__ void fill_slice(T* slice, F element) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kLayout == kAlongTile) {
    for (int e = thread; e < kSliceDepth * kSize; e += kTileThreads)
      slice[e / kSize * kTileStride<kSize> + e % kSize] = element(e / kSize, e % kSize);
  } else {
    // Each warp loads 8 adjacent elements of each of 4 rows or columns, so that the loads read whole memory
    // sectors and the stores to shared memory have no bank conflicts.
    const int d = thread % 8, i = thread / 8 % 4, warp = thread / kWarpSize;
    constexpr int kDepthGroups = kSliceDepth / 8;
    for (int group = warp; group < kDepthGroups * kSize / 4; group += kTileThreads / kWarpSize) {
      const int depth = group % kDepthGroups * 8 + d, column = group / kDepthGroups * 4 + i;
      slice[depth * kTileStride<kSize> + column] = element(depth, column);
    }
  }
}

// A slice visitor of add_products() that does nothing.
struct NoOpSliceVisitor {
  template <class Left>
  __device__ void operator()(int64_t, int, const Left&) const {}
};

// Adds to element (row, column) of the tile the sum of left(d, row) * right(d, column) over d < depth. The
// operands must return zero for d >= depth. All threads of the block must call add_tile_product(), which
// synchronises the block before it writes a slice, but not after it reads the last slice.
//
// Calls visit_slice(begin, count, element) for each slice of the left operand. element(i, row) returns
// left(begin + i, row) from shared memory, for i < count.
template <OperandLayout kLeftLayout, OperandLayout kRightLayout, class T, int kRows, int kColumns, class Left,
          class Right, class SliceVisitor = NoOpSliceVisitor>
__device__ void add_products(SimtTile<T, kRows, kColumns>& tile, const SimtMemory<T>& memory, int64_t depth,
                             Left left, Right right, SliceVisitor visit_slice = {}) {
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_slice<kLeftLayout, kRows>(memory.left, [&](int d, int i) { return left(begin + d, i); });
    fill_slice<kRightLayout, kColumns>(memory.right, [&](int d, int i) { return right(begin + d, i); });
    __syncthreads();
    const int slice_depth = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
    tile.add_product(memory.left, memory.right, slice_depth);
    visit_slice(begin, slice_depth,
                [&](int d, int row) { return memory.left[d * kTileStride<kRows> + row]; });
  }
}

// Adds to element (row, column) of the tile the sum of w(row, d) * right(d, column) over d < kTerms, where
// w(row, d) is an element of the tile `weights`. All threads of the block call the function.
template <class T, int kRows, int kColumns, int kTerms, class Right>
__device__ void add_tile_product(SimtTile<T, kRows, kColumns>& tile,
                                 const SimtTile<T, kRows, kTerms>& weights, const SimtMemory<T>& memory,
                                 Right right) {
  static_assert(kTerms <= kTileTokens && kTerms % kSliceDepth == 0);
  __syncthreads();  // all threads have read the previous weights
  weights.store_transposed(memory.weights);
  for (int begin = 0; begin < kTerms; begin += kSliceDepth) {
    __syncthreads();
    fill_slice<kAlongTile, kColumns>(memory.right, [&](int d, int i) { return right(begin + d, i); });
    __syncthreads();
    tile.add_product(memory.weights + begin * kTileStride<kRows>, memory.right, kSliceDepth);
  }
}

// Tiles that are multiplied in type T. The comment at the top of this file describes the members of
// SimtTiles.
template <class T>
struct SimtTiles {
  using Value = T;
  using Stored = T;
  using Memory = SimtMemory<T>;
  static constexpr int kThreads = kTileThreads;
  template <int kRows, int kColumns>
  using Tile = SimtTile<T, kRows, kColumns>;
};

// The rows of one head of a tensor. Row `position` begins at data + position * stride and has `width`
// elements. The functions return 0 for elements outside of the (count, width) matrix.
template <class S>
struct StridedRows {
  using Element = S;
  const S* data = nullptr;
  int64_t stride = 0, count = 0, width = 0;
  bool can_load_pack = false;  // whether load_pack() may be called

  __device__ bool contains(int64_t position, int64_t feature) const {
    return position < count && feature < width;
  }
  __device__ Compute<S> load(int64_t position, int64_t feature) const {
    return contains(position, feature) ? convert_element<Compute<S>>(data[position * stride + feature])
                                       : Compute<S>{0};
  }
  // Returns whether 16-byte loads can read the rows: the elements are bfloat16, the rows are aligned to 16
  // bytes, and stride and width are multiples of 8 elements.
  __device__ bool is_aligned_to_packs() const {
    if constexpr (!std::is_same_v<S, BFloat16>) return false;
    constexpr int kPackSize = Pack<S>::kSize;
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kPackSize == 0 && width % kPackSize == 0;
  }
  // Returns the elements of the Pack that begins at `feature`. Requires can_load_pack.
  __device__ Pack<S> load_pack(int64_t position, int64_t feature) const {
    return Pack<S>::load_or_zero(data + position * stride + feature, contains(position, feature));
  }
};

// Returns whether the address and the size of each row of the tensor `rows` are multiples of 16 bytes. Each
// row has `width` elements.
template <class S>
bool are_aligned_to_packs(const AttentionRows<S>& rows, int64_t width) {
  constexpr int64_t kPackBytes = 16, kPackSize = kPackBytes / sizeof(S);
  return reinterpret_cast<uintptr_t>(rows.data) % kPackBytes == 0 && rows.batch_stride % kPackSize == 0 &&
         rows.length_stride % kPackSize == 0 && rows.head_stride % kPackSize == 0 && width % kPackSize == 0;
}

// The submatrix of `rows` that begins at row `position` and column `feature`, as an operand of a matrix
// product. If kLayout is kAlongDepth, the product sums over features, otherwise over positions.
template <OperandLayout kLayout, class Rows>
struct RowsOperand {
  using S = typename Rows::Element;
  static constexpr bool kSumsOverFeatures = kLayout == kAlongDepth;
  const Rows& rows;
  int64_t position, feature;

  __device__ bool can_load_pack() const { return rows.can_load_pack; }
  __device__ Compute<S> operator()(int64_t d, int i) const {
    return kSumsOverFeatures ? rows.load(position + i, feature + d) : rows.load(position + d, feature + i);
  }
  // Returns 8 adjacent elements, beginning with operator()(d, i). The elements are adjacent along d if
  // kLayout is kAlongDepth, otherwise along i. Requires can_load_pack().
  __device__ auto load_pack(int64_t d, int i) const {
    return kSumsOverFeatures ? rows.load_pack(position + i, feature + d)
                             : rows.load_pack(position + d, feature + i);
  }
};
template <OperandLayout kLayout, class Rows>
__device__ RowsOperand<kLayout, Rows> make_operand(const Rows& rows, int64_t position, int64_t feature) {
  return {rows, position, feature};
}

// Calls f(std::integral_constant<int, columns>), where `columns` is the number of columns of each tile of a
// result with `width` columns. For types of 4 bytes, `columns` is 32 if `width` is at most 32, otherwise 64.
// For other types, `columns` is always 64, to save compile time.
template <class T, class F>
void visit_tile_width(int64_t width, F&& f) {
  if constexpr (sizeof(T) == sizeof(float))
    if (width <= 32) return f(std::integral_constant<int, 32>{});
  f(std::integral_constant<int, 64>{});
}
// Returns the number of tiles of `tile_size` elements that cover `size` elements.
inline int64_t count_tiles(int64_t size, int64_t tile_size) {
  return (size + tile_size - 1) / tile_size;
}

}  // namespace tapeformer::cuda
