// Tiles of the states of gated linear attention, and their distribution among threads.
//
// A tile consists of adjacent lines of a state. The lines are either columns or rows of the state. A group of
// lanes of a warp holds kLinesPerGroup adjacent lines, and each lane of the group holds some elements of each
// of these lines. Sums over the elements of a line are sums over the lanes of its group.
#pragma once

#include <algorithm>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

inline constexpr int kLinesPerGroup = 2, kMaxTileThreads = 128;

// The distribution of a line among the lanes of a group, if it is known at compile time. If kElements and
// kLanes are 0, TileLayout contains the distribution, and tiles are in global memory instead of registers.
template <int kElementsPerLane, int kLanesPerGroup>
struct LineShape {
  static constexpr int kElements = kElementsPerLane, kLanes = kLanesPerGroup;
  static constexpr bool kIsInRegisters = kElements > 0;
};
using LineShapeInMemory = LineShape<0, 0>;

// The distribution of a state among thread blocks and threads, and the chunks of tokens that a block loads at
// a time. Half of the threads of a block hold the tile. The other threads load the operands of the next chunk
// in the meantime.
struct TileLayout {
  int depth, line_count;           // number of elements of a line, and number of lines of the state
  int elements, lanes;             // number of elements of a line in a lane, and number of lanes of a group
  int threads;                     // number of threads that hold a tile, a multiple of the warp size
  int lines, tiles;                // number of lines of a tile, and number of tiles
  int tokens;                      // maximum number of tokens of a chunk
  bool is_chunk_in_shared_memory;  // true if tiles are in registers
  int64_t chunk_size;              // number of elements of the arrays of a chunk

  TAPEFORMER_HOST_DEVICE int64_t tile_size() const {  // number of elements of a tile, including padding
    return int64_t{kLinesPerGroup} * elements * threads;
  }
  // Returns the number of elements of global memory that a block needs if its tile is not in registers.
  TAPEFORMER_HOST_DEVICE int64_t workspace_size() const {
    return tile_size() + (is_chunk_in_shared_memory ? 0 : 2 * chunk_size);
  }
  // Returns the number of elements of a vector of a chunk, which is `depth` with padding.
  template <class Shape>
  TAPEFORMER_HOST_DEVICE int vector_size() const {
    return Shape::kIsInRegisters ? Shape::kElements * Shape::kLanes : elements * lanes;
  }
  // Returns the number of elements of an array of a chunk that has a number for each line of a tile.
  template <class Shape>
  TAPEFORMER_HOST_DEVICE int numbers_size() const {
    return kMaxTileThreads / (Shape::kIsInRegisters ? Shape::kLanes : lanes) * kLinesPerGroup;
  }
};

// Calls f(shape) with the LineShape of lines of `depth` elements. For double, tiles are in global memory,
// because only tests use double.
template <class T, class F>
void visit_line_shape(int64_t depth, F&& f) {
  if constexpr (sizeof(T) == sizeof(float)) {
    if (depth <= 32) return f(LineShape<8, 4>{});
    if (depth <= 64) return f(LineShape<8, 8>{});
    if (depth <= 128) return f(LineShape<16, 8>{});
    if (depth <= 256) return f(LineShape<16, 16>{});
  }
  f(LineShapeInMemory{});
}

// Returns the layout of a state. For each token, a chunk has `vectors` vectors and `numbers` arrays with a
// number for each line of a tile.
template <class T>
TileLayout choose_tile_layout(int64_t depth, int64_t line_count, int vectors, int numbers) {
  constexpr int64_t kMaxTokens = 16, kMaxChunkBytes = 24 << 10;
  TileLayout layout;
  layout.depth = static_cast<int>(depth);
  layout.line_count = static_cast<int>(line_count);
  visit_line_shape<T>(depth, [&]<class Shape>(Shape) {
    layout.elements = Shape::kIsInRegisters ? Shape::kElements : (layout.depth + kWarpSize - 1) / kWarpSize;
    layout.lanes = Shape::kIsInRegisters ? Shape::kLanes : kWarpSize;
  });
  const int64_t lanes = (line_count + kLinesPerGroup - 1) / kLinesPerGroup * layout.lanes;
  layout.threads =
      static_cast<int>(std::min<int64_t>((lanes + kWarpSize - 1) / kWarpSize * kWarpSize, kMaxTileThreads));
  layout.lines = layout.threads / layout.lanes * kLinesPerGroup;
  layout.tiles = line_count > 0 ? (layout.line_count - 1) / layout.lines + 1 : 0;
  const int64_t token_size = int64_t{vectors} * layout.vector_size<LineShapeInMemory>() +
                             int64_t{numbers} * layout.numbers_size<LineShapeInMemory>(),
                token_bytes = token_size * static_cast<int64_t>(sizeof(T));
  layout.tokens = static_cast<int>(std::clamp<int64_t>(kMaxChunkBytes / token_bytes, 1, kMaxTokens));
  layout.is_chunk_in_shared_memory = token_bytes <= kMaxChunkBytes;
  layout.chunk_size = layout.tokens * token_size;
  return layout;
}

// The elements of a tile that a thread holds. Vectors have TileLayout::vector_size() elements, which are 0
// beyond the depth of the state. If tiles are in registers, vectors must be aligned to 16 bytes.
template <class T, class Shape>
class StateTile {
 public:
  using Numbers = T[kLinesPerGroup];  // a number for each line of the group

  // `memory` is the memory of the tile, with tile_size() elements. It is not used for tiles in registers.
  __device__ StateTile(const TileLayout& layout, T* memory) : layout_(layout), memory_(memory) {}

  // Returns the number of lanes of a group, and the index of the calling lane in its group.
  __device__ int lanes() const { return kInRegisters ? Shape::kLanes : layout_.lanes; }
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % lanes(); }

  // Calls f(l, j, x) for each element x of this thread, which is element j of line l of the group.
  template <class F>
  __device__ void for_each(F&& f) {
#pragma unroll(kUnroll)
    for (int i = 0; i < count(); ++i)
#pragma unroll
      for (int l = 0; l < kLinesPerGroup; ++l) f(l, position(i), element(l, i));
  }
  // Multiplies each line element by element by `factors`.
  __device__ void multiply(const T* factors) {
    for_each_of(factors, [&](int l, int i, T factor) { element(l, i) *= factor; });
  }
  // Multiplies line l by factors[l].
  __device__ void multiply_lines(const Numbers& factors) {
    for_each([&](int l, int, T& x) { x *= factors[l]; });
  }
  // Adds factors[l] times `vector` to line l.
  __device__ void add(const T* vector, const Numbers& factors) {
    for_each_of(vector, [&](int l, int i, T x) { element(l, i) += x * factors[l]; });
  }
  // Sets products[l] to the dot product of line l and `vector`. All lanes of the warp must call dot().
  __device__ void dot(const T* vector, Numbers& products) {
    T sums[2][kLinesPerGroup] = {};  // two sums for each line shorten the chain of dependent additions
    for_each_of(vector, [&](int l, int i, T x) { sums[kInRegisters ? i % 2 : 0][l] += x * element(l, i); });
#pragma unroll
    for (int l = 0; l < kLinesPerGroup; ++l) products[l] = sums[0][l] + sums[1][l];
    add_lanes(products);
  }
  // Copies the elements of this thread to `saved`, an array with tile_size() elements.
  __device__ void save(T* saved) {
#pragma unroll(kUnroll)
    for (int i = 0; i < count(); ++i)
#pragma unroll
      for (int l = 0; l < kLinesPerGroup; ++l) saved[offset(l, i)] = element(l, i);
  }
  // Sets products[l] to the dot product of line l of this tile and line l of a tile that save() has copied.
  // All lanes of the warp must call dot_saved().
  __device__ void dot_saved(const T* saved, Numbers& products) {
#pragma unroll
    for (T& product : products) product = 0;
#pragma unroll(kUnroll)
    for (int i = 0; i < count(); ++i)
#pragma unroll
      for (int l = 0; l < kLinesPerGroup; ++l) products[l] += element(l, i) * saved[offset(l, i)];
    add_lanes(products);
  }

 private:
  static constexpr bool kInRegisters = Shape::kIsInRegisters;
  static constexpr int kGroup = kInRegisters ? Pack<T>::kSize : 1;  // number of adjacent elements of a lane
  static constexpr int kUnroll = kInRegisters ? Shape::kElements : 1;

  __device__ int count() const {
    return kInRegisters ? Shape::kElements : layout_.elements;
  }
  // Returns the position in a line of element i of this lane.
  __device__ int position(int i) const {
    return (i / kGroup * lanes() + lane()) * kGroup + i % kGroup;
  }
  __device__ int64_t offset(int l, int i) const {
    return int64_t{l * count() + i} * layout_.threads + threadIdx.x;
  }
  __device__ T& element(int l, int i) {
    if constexpr (kInRegisters)
      return registers_[l][i];
    else
      return memory_[offset(l, i)];
  }
  // Calls f(l, i, x) for each element i of this lane and each line l, where x is the element of `vector` at
  // position(i).
  template <class F>
  __device__ void for_each_of(const T* vector, F&& f) {
#pragma unroll(kUnroll)
    for (int first = 0; first < count(); first += kGroup) {
      T values[kGroup];
      load_group<kGroup>(vector + position(first), values);
#pragma unroll
      for (int v = 0; v < kGroup; ++v)
#pragma unroll
        for (int l = 0; l < kLinesPerGroup; ++l) f(l, first + v, values[v]);
    }
  }
  // Replaces `numbers` by their sums over the lanes of the group.
  __device__ void add_lanes(Numbers& numbers) const {
#pragma unroll
    for (int bits = 1; bits < kWarpSize; bits *= 2) {
      if (bits >= lanes()) break;
#pragma unroll
      for (T& number : numbers) number += __shfl_xor_sync(kAllLanes, number, bits);
    }
  }

  const TileLayout& layout_;
  T* memory_;
  T registers_[kLinesPerGroup][kInRegisters ? Shape::kElements : 1];
};

}  // namespace tapeformer::cuda
