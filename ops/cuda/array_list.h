// Lists of arrays that a kernel processes in one launch. A list is passed as a kernel parameter, so its size
// is limited. Each thread block processes at most kElementsPerChunk elements of each array of one list entry.
#pragma once

#include <cstdint>

#include "core/cuda/kernel.h"

namespace tapeformer::cuda {

inline constexpr int kMaxListEntries = 384;
// Maximum size of an ArrayList in bytes. CUDA 12.1 and later limit the total size of the parameters of a
// kernel to 32,764 bytes.
inline constexpr size_t kMaxListBytes = 24 << 10;
// Maximum number of elements of an array that a thread block processes. This maximum is a multiple of
// Pack<T>::kSize, so that each chunk of an array begins at an aligned address.
inline constexpr int64_t kElementsPerChunk = 8192;

// A list of at most kMaxListEntries entries. An `Entry` contains pointers to arrays of equal size, such as a
// parameter and its gradient. The member `n` of an entry is the number of elements of each array.
template <class Entry>
struct ArrayList {
  Entry entries[kMaxListEntries];
  // first_chunk[i] is the index of the first chunk of entry i, and first_chunk[entry_count] is the total
  // number of chunks.
  int first_chunk[kMaxListEntries + 1];
  int entry_count;
};

// Splits `entry_count` entries into lists. Calls f(list, first) for each list, where `first` is the index of
// the first entry of the list in `entries`. Throws ShapeError if a list has INT32_MAX or more chunks. `op`
// is the name of the op in the message.
template <class Entry, class F>
void for_each_list(const char* op, const Entry* entries, int64_t entry_count, F&& f) {
  static_assert(sizeof(ArrayList<Entry>) <= kMaxListBytes);
  for (int64_t first = 0; first < entry_count; first += kMaxListEntries) {
    ArrayList<Entry> list{};
    list.entry_count = static_cast<int>(std::min<int64_t>(kMaxListEntries, entry_count - first));
    int64_t chunk_count = 0;
    for (int i = 0; i < list.entry_count; ++i) {
      list.entries[i] = entries[first + i];
      list.first_chunk[i] = static_cast<int>(chunk_count);
      chunk_count += (list.entries[i].n + kElementsPerChunk - 1) / kElementsPerChunk;
    }
    check(chunk_count < INT32_MAX, op, chunk_count, " chunks of arrays are too many");
    list.first_chunk[list.entry_count] = static_cast<int>(chunk_count);
    f(list, first);
  }
}

// A part of a list entry: elements [begin, end) of each array of the entry.
struct ArrayChunk {
  int entry_index;
  int64_t begin, end;
};
// Returns the chunk that the calling block processes.
template <class Entry>
__device__ ArrayChunk find_block_chunk(const ArrayList<Entry>& list) {
  const int block = static_cast<int>(blockIdx.x);
  int entry_index = 0, end_index = list.entry_count;
  while (end_index - entry_index > 1) {
    const int middle = (entry_index + end_index) / 2;
    (list.first_chunk[middle] <= block ? entry_index : end_index) = middle;
  }
  const int64_t begin = (block - list.first_chunk[entry_index]) * kElementsPerChunk,
                n = list.entries[entry_index].n;
  return {entry_index, begin, begin + kElementsPerChunk < n ? begin + kElementsPerChunk : n};
}

}  // namespace tapeformer::cuda
