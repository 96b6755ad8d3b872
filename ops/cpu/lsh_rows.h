// Copies of the rows of one head in adjacent memory. In a tensor (batch, length, heads, dim), the rows of a
// head are heads * dim elements apart, which causes more cache and TLB misses.
#pragma once

#include <array>
#include <cstdint>

#include "core/threads/threads.h"
#include "ops/cpu/arena.h"

namespace tapeformer::cpu {

// An array with one row per position.
template <class T>
struct PositionRows {
  T* data = nullptr;
  int64_t stride = 0;
  T* row(int64_t position) const { return data + position * stride; }
  operator PositionRows<const T>() const { return {data, stride}; }  // NOLINT
};

// Allocates kParts arrays of `length` rows, where the rows of array k have `widths[k]` elements. The rows of
// all arrays for one position are adjacent in memory.
template <class T, size_t kParts>
std::array<PositionRows<T>, kParts> allocate_rows(Arena& arena, int64_t length,
                                                  const std::array<int64_t, kParts>& widths) {
  constexpr int64_t kLineElements = 64 / static_cast<int64_t>(sizeof(T));  // cache lines have 64 bytes
  std::array<PositionRows<T>, kParts> parts{};
  int64_t stride = 0;
  for (const int64_t width : widths) stride += (width + kLineElements - 1) / kLineElements * kLineElements;
  T* data = arena.allocate<T>(length * stride);
  for (size_t i = 0; i < kParts; ++i) {
    parts[i] = {data, stride};
    if (data) data += (widths[i] + kLineElements - 1) / kLineElements * kLineElements;
  }
  return parts;
}

// Calls f(position) for positions [0, count), in parallel unless the caller is inside a parallel loop.
template <class F>
void parallel_for_each_position(int64_t count, F&& f) {
  constexpr int64_t kGrain = 1024;
  parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) f(i);
  });
}

}  // namespace tapeformer::cpu
