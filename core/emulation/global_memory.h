// Table of the memory blocks that the emulation of CUDA has allocated as global memory. All functions are
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapeformer::cuda::emulation {

// The addresses [begin, end).
struct AddressRange {
  uint64_t begin = 0, end = 0;
  bool contains(uint64_t address) const { return address >= begin && address < end; }
};

// register_global_memory() adds a block of global memory to a table, and unregister_global_memory() removes
// a block from the table.
void register_global_memory(const void* block, size_t bytes);
void unregister_global_memory(const void* block);
// Returns the registered blocks, sorted by address.
std::vector<AddressRange> list_global_memory();

}  // namespace tapeformer::cuda::emulation
