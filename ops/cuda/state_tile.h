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

// The distribution of a state among thread blocks and threads, and the chunks of tokens that a block loads at
// a time. Half of the threads of a block hold the tile. The other threads load the operands of the next chunk
// in the meantime.
struct TileLayout {
  int depth, line_count;           // number of elements of a line, and number of lines of the state
  int elements;                    // number of elements of a line that a lane holds
  bool is_in_registers;            // whether tiles are in registers or in global memory
  int lanes;                       // number of lanes of a group, a power of two
  int threads;                     // number of threads that hold a tile, a multiple of the warp size
  int lines, tiles;                // number of lines of a tile, and number of tiles
  int tokens;                      // maximum number of tokens of a chunk
  bool is_chunk_in_shared_memory;  // whether the arrays of chunks are in shared or global memory
  int64_t chunk_size;              // number of elements of the arrays of a chunk

  TAPEFORMER_HOST_DEVICE int width() const { return lanes * elements; }  // `depth` with padding
  TAPEFORMER_HOST_DEVICE int64_t tile_size() const {                     // elements of a tile with padding
    return int64_t{kLinesPerGroup} * elements * threads;
  }
  // Returns the number of elements of global memory that a block needs for its tile and for two chunks.
  TAPEFORMER_HOST_DEVICE int64_t workspace_size() const {
    if (!is_chunk_in_shared_memory) return tile_size() + 2 * chunk_size;
    return is_in_registers ? 0 : tile_size();
  }
};

// Returns the layout of a state. For each token, a chunk has `vectors` arrays of width() elements and
// `numbers` arrays with one element for each line of the tile.
template <class T>
TileLayout choose_tile_layout(int64_t depth, int64_t line_count, int vectors, int numbers) {
  constexpr int kMaxTokens = 16;
  constexpr int64_t kMaxChunkBytes = 24 << 10, kMaxDepthInRegisters = 512;
  TileLayout layout;
  layout.depth = static_cast<int>(depth);
  layout.line_count = static_cast<int>(line_count);
  // For double, tiles are in global memory, because only tests use double.
  layout.is_in_registers = sizeof(T) == sizeof(float) && depth <= kMaxDepthInRegisters;
  layout.elements = depth <= 64                     ? 8
                    : depth <= kMaxDepthInRegisters ? 16
                                                    : (layout.depth + kWarpSize - 1) / kWarpSize;
  layout.lanes = 1;
  while (layout.width() < depth) layout.lanes *= 2;
  const int64_t groups = (line_count + kLinesPerGroup - 1) / kLinesPerGroup;
  layout.threads = static_cast<int>(
      std::min<int64_t>((groups * layout.lanes + kWarpSize - 1) / kWarpSize * kWarpSize, kMaxTileThreads));
  layout.lines = layout.threads / layout.lanes * kLinesPerGroup;
  layout.tiles = line_count > 0 ? (layout.line_count - 1) / layout.lines + 1 : 0;
  const int64_t token_size = int64_t{vectors} * layout.width() + int64_t{numbers} * layout.lines,
                token_bytes = token_size * static_cast<int64_t>(sizeof(T));
  layout.tokens = static_cast<int>(
      std::clamp<int64_t>(kMaxChunkBytes / std::max<int64_t>(token_bytes, 1), 1, kMaxTokens));
  layout.is_chunk_in_shared_memory = token_bytes <= kMaxChunkBytes;
  layout.chunk_size = (layout.tokens * token_size + 3) / 4 * 4;  // chunks are aligned to 16 bytes
  return layout;
}

// The elements of a tile that a thread holds. kElements is TileLayout::elements, or 0 if the tile is in
// global memory. Vectors have TileLayout::width() elements, which are 0 beyond the depth of the state. For
// kElements > 0, vectors must be aligned to 16 bytes.
template <class T, int kElements>
class StateTile {
 public:
  using Numbers = T[kLinesPerGroup];  // a number for each line of the group

  // `memory` is the memory of the tile, which has tile_size() elements. It is not used if kElements > 0.
  __device__ StateTile(const TileLayout& layout, T* memory)
      : lanes_(layout.lanes),
        lane_(static_cast<int>(threadIdx.x) & (layout.lanes - 1)),
        count_(layout.elements),
        threads_(layout.threads),
        memory_(memory) {}

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
    for_each_of(vector, [&](int l, int i, T x) { sums[kElements > 0 ? i % 2 : 0][l] += x * element(l, i); });
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
  static constexpr int kAdjacent = kElements > 0 ? Pack<T>::kSize : 1;  // adjacent elements of a lane
  static constexpr int kUnroll = kElements > 0 ? kElements : 1;

  __device__ int count() const {
    return kElements > 0 ? kElements : count_;
  }
  // Returns the position in a line of element i of this lane.
  __device__ int position(int i) const {
    return (i / kAdjacent * lanes_ + lane_) * kAdjacent + i % kAdjacent;
  }
  __device__ int64_t offset(int l, int i) const {
    return int64_t{l * count() + i} * threads_ + threadIdx.x;
  }
  __device__ T& element(int l, int i) {
    if constexpr (kElements > 0)
      return registers_[l][i];
    else
      return memory_[offset(l, i)];
  }
  // Calls f(l, i, x) for each element i of this lane and each line l, where x is the element of `vector` at
  // position(i).
  template <class F>
  __device__ void for_each_of(const T* vector, F&& f) {
#pragma unroll(kUnroll)
    for (int first = 0; first < count(); first += kAdjacent) {
      T values[kAdjacent];
      load_group<kAdjacent>(vector + position(first), values);
#pragma unroll
      for (int v = 0; v < kAdjacent; ++v)
#pragma unroll
        for (int l = 0; l < kLinesPerGroup; ++l) f(l, first + v, values[v]);
    }
  }
  // Replaces `numbers` by their sums over the lanes of the group.
  __device__ void add_lanes(Numbers& numbers) const {
    for (int bits = 1; bits < lanes_; bits *= 2)
#pragma unroll
      for (T& number : numbers) number += __shfl_xor_sync(kAllLanes, number, bits);
  }

  T registers_[kLinesPerGroup][kElements > 0 ? kElements : 1];
  int lanes_, lane_, count_, threads_;
  T* memory_;
};

}  // namespace tapeformer::cuda
