// Lists of arrays that one launch processes. A launch takes up to kListed entries by value. Each block of
// threads processes one chunk of one entry.
#pragma once

#include <cstdint>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

// The arguments of a kernel have at most 32,764 bytes with CUDA 12.1 or later.
inline constexpr int kListed = 384;
inline constexpr size_t kMaxListBytes = 24 << 10;
inline constexpr int64_t kArrayChunk = 8192;  // elements per block, a multiple of a Pack

// At most kListed entries. An `Entry` describes arrays of equal size n, such as a parameter and its gradient.
template <class Entry>
struct ArrayList {
  Entry arrays[kListed];
  int first_chunk[kListed + 1];  // first chunk of each entry, and the total number of chunks
  int count;
};

// Splits the entries into lists. Calls f(list, index of the first entry in the list) for each list. Throws
// ShapeError if a list has INT32_MAX or more chunks.
template <class Entry, class F>
void for_lists(const char* op, const Entry* all, int64_t count, F&& f) {
  static_assert(sizeof(ArrayList<Entry>) <= kMaxListBytes);
  for (int64_t first = 0; first < count; first += kListed) {
    ArrayList<Entry> list{};
    list.count = static_cast<int>(std::min<int64_t>(kListed, count - first));
    int64_t chunks = 0;
    for (int i = 0; i < list.count; ++i) {
      list.arrays[i] = all[first + i];
      list.first_chunk[i] = static_cast<int>(chunks);
      chunks += (list.arrays[i].n + kArrayChunk - 1) / kArrayChunk;
    }
    check(chunks < INT32_MAX, op, chunks, " chunks of arrays are too many");
    list.first_chunk[list.count] = static_cast<int>(chunks);
    f(list, first);
  }
}

// Returns the number of elements of the entries of a list.
template <class Entry>
int64_t elements_of(const ArrayList<Entry>& list) {
  int64_t elements = 0;
  for (int i = 0; i < list.count; ++i) elements += list.arrays[i].n;
  return elements;
}

struct Chunk {
  int slot;  // index of the entry
  int64_t begin, end;
};
template <class Entry>
__device__ Chunk chunk_of_block(const ArrayList<Entry>& list) {
  const int block = static_cast<int>(blockIdx.x);
  int slot = 0, end_slot = list.count;
  while (end_slot - slot > 1) {
    const int middle = (slot + end_slot) / 2;
    (list.first_chunk[middle] <= block ? slot : end_slot) = middle;
  }
  const int64_t begin = (block - list.first_chunk[slot]) * kArrayChunk, n = list.arrays[slot].n;
  return {slot, begin, begin + kArrayChunk < n ? begin + kArrayChunk : n};
}

}  // namespace tapeformer::cuda
