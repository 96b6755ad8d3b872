// Matrix products that a block of threads computes for the attention kernels. The elements of the operands
// are computed while they are read. The terms of a sum are staged in shared memory in slices, and each thread
// keeps a few elements of the result in registers.
//
// Kernels are templates over a kind of tiles: PlainTiles multiply in the type of their elements, and
// TensorTiles (tensor_tiles.h) multiply on tensor cores. A kind of tiles has the members
//   Value    the type of elements
//   Stored   the type of the elements of the tensors
//   kThreads threads per block
//   Memory   slices in dynamic shared memory: kSliceBytes, or kBytes in kernels that call add_products_of
//   Tile<kRows, kColumns>   the elements of a tile in one thread: elements[i][j] in row(i) and column(j)
// and the functions add_products and add_products_of for its tiles.
#pragma once

#include <type_traits>

#include "core/cuda/kernel.h"
#include "ops/kernels/attention.h"

namespace tapeformer::cuda {

inline constexpr int kTileThreads = 256;
inline constexpr int kTileEdge = 16;    // threads along either side of a tile
inline constexpr int kTokens = 64;      // number of queries or keys of a tile
inline constexpr int kSliceDepth = 32;  // number of terms of the sums in shared memory at a time

// The row stride of a tile or slice of kSize columns in shared memory. It keeps rows aligned for vector loads
// and avoids bank conflicts when a slice is filled along the depth.
template <int kSize>
inline constexpr int kTileStride = kSize + 4;
template <int kSize>
inline constexpr int kSliceElements = kSliceDepth* kTileStride<kSize>;

template <class T>
struct PlainMemory {
  static constexpr size_t kSliceBytes = 2 * kSliceElements<kTokens> * sizeof(T);
  static constexpr size_t kBytes = kSliceBytes + kTokens * kTileStride<kTokens> * sizeof(T);
  T *left, *right;
  T* weights;  // indexed by [column][row]

  __device__ PlainMemory()
      : left(dynamic_shared<T>()),
        right(left + kSliceElements<kTokens>),
        weights(right + kSliceElements<kTokens>) {}
};

template <class T, int kRows, int kColumns>
struct PlainTile {
  static constexpr int kRowsEach = kRows / kTileEdge, kColumnsEach = kColumns / kTileEdge;
  static constexpr int kRowStride = kTileStride<kRows>, kColumnStride = kTileStride<kColumns>;
  T elements[kRowsEach][kColumnsEach] = {};

  __device__ static int row(int i) { return static_cast<int>(threadIdx.x) / kTileEdge * kRowsEach + i; }
  __device__ static int column(int j) { return static_cast<int>(threadIdx.x) % kTileEdge * kColumnsEach + j; }
  // Returns column(j) - column(0).
  __device__ static constexpr int column_offset(int j) { return j; }
  // Returns true in exactly one of the threads that share rows.
  __device__ static bool first_of_row() { return threadIdx.x % kTileEdge == 0; }
  // Reduces over the threads that share rows. Each of them gets the result.
  template <class Operation>
  __device__ static T row_reduce(T value) {
    for (int bits = kTileEdge / 2; bits > 0; bits /= 2)
      value = Operation::apply(value, __shfl_xor_sync(kAllLanes, value, bits));
    return value;
  }

  // Adds the sum over d < depth of left[d][row] right[d][column].
  __device__ void add_product(const T* left, const T* right, int depth) {
    left += row(0);
    right += column(0);
#pragma unroll(kUnrolled <T, 8>)
    for (int d = 0; d < depth; ++d, left += kRowStride, right += kColumnStride) {
      const auto a = *reinterpret_cast<const Few<kRowsEach>*>(left);
      const auto b = *reinterpret_cast<const Few<kColumnsEach>*>(right);
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
        for (int j = 0; j < kColumnsEach; ++j) elements[i][j] += a.values[i] * b.values[j];
    }
  }
  // Writes the transposed tile, target[column][row], in the layout of the left operand of add_product().
  __device__ void store_transposed(T* target) const {
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < kColumnsEach; ++j) {
      Few<kRowsEach> few;
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < kRowsEach; ++i) few.values[i] = elements[i][j];
      *reinterpret_cast<Few<kRowsEach>*>(target + column(j) * kRowStride + row(0)) = few;
    }
  }

 private:
  // Adjacent elements that are loaded or stored together.
  template <int kCount>
  struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Few {
    T values[kCount];
  };
};

// The memory order of an operand. The lanes of a warp read either adjacent terms of a sum (along_depth), or
// adjacent rows or columns of a tile (along_tile).
enum class Lanes { along_depth, along_tile };

// Fills slice[d][i] = element(d, i) for d < kSliceDepth, i < kSize.
template <Lanes kLanes, int kSize, class T, class F>
__device__ void fill_slice(T* slice, F element) {
  const int thread = static_cast<int>(threadIdx.x);
  if constexpr (kLanes == Lanes::along_tile) {
    for (int e = thread; e < kSliceDepth * kSize; e += kTileThreads)
      slice[e / kSize * kTileStride<kSize> + e % kSize] = element(e / kSize, e % kSize);
  } else {
    // A warp loads 8 adjacent elements of 4 rows, which are whole memory sectors, and stores them to 32
    // different banks.
    const int d = thread % 8, i = thread / 8 % 4, warp = thread / kWarpSize;
    constexpr int kGroups = kSliceDepth / 8;
    for (int part = warp; part < kGroups * kSize / 4; part += kTileThreads / kWarpSize) {
      const int depth = part % kGroups * 8 + d, column = part / kGroups * 4 + i;
      slice[depth * kTileStride<kSize> + column] = element(depth, column);
    }
  }
}

struct NoAction {
  template <class Left>
  __device__ void operator()(int64_t, int, const Left&) const {}
};

// Adds to the tile the sum over d < depth of left(d, row) right(d, column). All threads of the block call the
// function. The function synchronises before it writes the slices, and not after it reads them.
// each_slice(first d, count, element) runs after each slice is filled; element(i, row) is left(first d + i,
// row). The operands return zero for d beyond the depth.
template <Lanes kLeft, Lanes kRight, class T, int kRows, int kColumns, class Left, class Right,
          class EachSlice = NoAction>
__device__ void add_products(PlainTile<T, kRows, kColumns>& tile, const PlainMemory<T>& memory, int64_t depth,
                             Left left, Right right, EachSlice each_slice = {}) {
  for (int64_t begin = 0; begin < depth; begin += kSliceDepth) {
    __syncthreads();
    fill_slice<kLeft, kRows>(memory.left, [&](int d, int i) { return left(begin + d, i); });
    fill_slice<kRight, kColumns>(memory.right, [&](int d, int i) { return right(begin + d, i); });
    __syncthreads();
    const int count = static_cast<int>(depth - begin < kSliceDepth ? depth - begin : kSliceDepth);
    tile.add_product(memory.left, memory.right, count);
    each_slice(begin, count, [&](int d, int row) { return memory.left[d * kTileStride<kRows> + row]; });
  }
}

// Adds to the tile the sum over d < kTerms of weights[row][d] right(d, column).
template <class T, int kRows, int kColumns, int kTerms, class Right>
__device__ void add_products_of(PlainTile<T, kRows, kColumns>& tile,
                                const PlainTile<T, kRows, kTerms>& weights, const PlainMemory<T>& memory,
                                Right right) {
  static_assert(kTerms <= kTokens && kTerms % kSliceDepth == 0);
  __syncthreads();  // all threads have read the previous weights
  weights.store_transposed(memory.weights);
  for (int begin = 0; begin < kTerms; begin += kSliceDepth) {
    __syncthreads();
    fill_slice<Lanes::along_tile, kColumns>(memory.right, [&](int d, int i) { return right(begin + d, i); });
    __syncthreads();
    tile.add_product(memory.weights + begin * kTileStride<kRows>, memory.right, kSliceDepth);
  }
}

template <class T>
struct PlainTiles {
  using Value = T;
  using Stored = T;
  using Memory = PlainMemory<T>;
  static constexpr int kThreads = kTileThreads;
  template <int kRows, int kColumns>
  using Tile = PlainTile<T, kRows, kColumns>;
};

// Rows of one head. Elements beyond `count` and `width` are zero.
template <class S>
struct PlainRows {
  using Element = S;
  const S* data = nullptr;
  int64_t stride = 0, count = 0, width = 0;
  bool is_packed = false;  // whether pack() may be called

  __device__ bool contains(int64_t position, int64_t feature) const {
    return position < count && feature < width;
  }
  __device__ Compute<S> at(int64_t position, int64_t feature) const {
    return contains(position, feature) ? convert_element<Compute<S>>(data[position * stride + feature])
                                       : Compute<S>{0};
  }
  // Returns whether 16-byte loads can read the rows. Rows must be bfloat16 and aligned, and their stride and
  // width must be multiples of 8 elements.
  __device__ bool has_packs() const {
    if constexpr (!std::is_same_v<S, BFloat16>) return false;
    constexpr int kPack = Pack<S>::kSize;
    return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % kPack == 0 && width % kPack == 0;
  }
  // Returns the elements of a Pack that begins at `feature`. Requires is_packed.
  __device__ Pack<S> pack(int64_t position, int64_t feature) const {
    return contains(position, feature) ? Pack<S>::load(data + position * stride + feature) : Pack<S>{};
  }
};

// Returns whether PlainRows::pack() can read all rows of a tensor.
template <class S>
bool has_packs(const AttentionRows<const S>& rows, int64_t width) {
  constexpr int64_t kPack = Pack<S>::kSize;
  return reinterpret_cast<uintptr_t>(rows.data) % sizeof(Pack<S>) == 0 && rows.batch_stride % kPack == 0 &&
         rows.length_stride % kPack == 0 && rows.head_stride % kPack == 0 && width % kPack == 0;
}

// An operand of products that begins at a position and a feature of the rows of a head. If kLanes is
// along_depth, the products are summed over the features. If kLanes is along_tile, each feature is a row or a
// column of the tile.
template <Lanes kLanes, class Rows>
struct RowsOperand {
  using S = typename Rows::Element;
  static constexpr bool kAlongDepth = kLanes == Lanes::along_depth;
  const Rows& rows;
  int64_t position, feature;

  __device__ bool is_packed() const { return rows.is_packed; }
  __device__ Compute<S> operator()(int64_t d, int i) const {
    return kAlongDepth ? rows.at(position + i, feature + d) : rows.at(position + d, feature + i);
  }
  // Returns 8 elements, after the conversions of at() if the rows have any. For Lanes::along_depth, they are
  // the elements (d, i) to (d + 7, i). For Lanes::along_tile, they are the elements (d, i) to (d, i + 7).
  // Requires is_packed().
  __device__ auto pack(int64_t d, int i) const {
    return kAlongDepth ? rows.pack(position + i, feature + d) : rows.pack(position + d, feature + i);
  }
};
template <Lanes kLanes, class Rows>
__device__ RowsOperand<kLanes, Rows> rows_operand(const Rows& rows, int64_t position, int64_t feature) {
  return {rows, position, feature};
}

// Calls f with the number of columns of the tiles for a result of this width, as a compile-time constant.
// Double uses one width to save compile time.
template <class T, class F>
void with_tile_width(int64_t width, F&& f) {
  if constexpr (sizeof(T) == sizeof(float))
    if (width <= 32) return f(std::integral_constant<int, 32>{});
  f(std::integral_constant<int, 64>{});
}
// Returns the number of tiles that cover `size`.
inline int64_t tiles_of(int64_t size, int64_t tile) {
  return (size + tile - 1) / tile;
}

// Computes dots (batch, heads, length) = sign * multipliers * (a . b) over rows of `dim` elements, one warp
// per row. `multipliers` has the shape of dots; if it is null, all multipliers are 1.
template <class A, class B, class T = Compute<A>>
__global__ void row_dots_kernel(AttentionRows<const A> a, AttentionRows<const B> b, const T* multipliers,
                                T sign, int64_t length, int64_t heads, int64_t dim, int64_t count, T* dots) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t i = first_element() / kWarpSize; i < count; i += element_stride() / kWarpSize) {
    const int64_t head = i % heads, position = i / heads % length, example = i / heads / length;
    const A* const x = a.row(example, position, head);
    const B* const y = b.row(example, position, head);
    T sum = 0;
    for (int64_t d = lane; d < dim; d += kWarpSize)
      sum += convert_element<T>(x[d]) * convert_element<T>(y[d]);
    sum = warp_reduce<Plus>(sum);
    const int64_t target = (example * heads + head) * length + position;
    if (lane == 0) dots[target] = sign * sum * (multipliers ? multipliers[target] : T{1});
  }
}
template <class A, class B>
void row_dots(AttentionRows<const A> a, AttentionRows<const B> b, const Compute<A>* multipliers,
              Compute<A> sign, int64_t batch, int64_t length, int64_t heads, int64_t dim, Compute<A>* dots) {
  const int64_t count = batch * length * heads;
  launch(row_dots_kernel<A, B>, over_elements(count * kWarpSize), a, b, multipliers, sign, length, heads, dim,
         count, dots);
}

}  // namespace tapeformer::cuda
