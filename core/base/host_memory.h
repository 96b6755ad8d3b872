// The amount of memory that the process can use.
#pragma once

#include <cstdint>

namespace tapeformer {

// Returns the available memory of the computer in bytes, or the memory limit of the control group if the
// limit is less. Each call reads the values again. The function is thread-safe.
int64_t get_available_memory();

// Returns whether the process can map `bytes` more bytes of memory. A limit on the address space (ulimit -v)
// can prevent this although memory is available.
bool can_map_memory(int64_t bytes);

}  // namespace tapeformer
