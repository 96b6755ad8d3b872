// The amount of memory that this process may allocate.
#pragma once

#include <cstdint>

namespace tapeformer {

// Returns the number of bytes that this process may allocate: the available memory of the computer, or the
// memory limit of the control group if the limit is less. Each call reads the values again. The function is
// thread-safe.
int64_t get_available_memory();

}  // namespace tapeformer
