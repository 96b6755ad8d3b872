// The amount of available memory.
#pragma once

#include <cstdint>

namespace tapeformer {

// Returns the available memory of the computer in bytes, or the memory limit of the control group if the
// limit is less. Each call reads the values again. The function is thread-safe.
int64_t get_available_memory();

}  // namespace tapeformer
