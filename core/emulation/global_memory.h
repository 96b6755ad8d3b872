// The blocks of memory that the emulation of CUDA has allocated as global memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapeformer::cuda::emulation {

struct AddressRange {
  uint64_t begin = 0, end = 0;
  bool contains(uint64_t address) const { return address >= begin && address < end; }
};

// The functions may be called by several threads.
void note_global_memory(const void* block, size_t bytes);
void forget_global_memory(const void* block);
// Returns the blocks, sorted by address.
std::vector<AddressRange> global_memory();

}  // namespace tapeformer::cuda::emulation
