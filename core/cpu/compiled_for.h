// The instruction set for which the CPU kernels of this program are compiled. A distribution contains the
// kernels once per instruction level, and the dynamic loader selects the level for the processor.
#pragma once

#include "core/instruction_set.h"

namespace tapeformer::cpu {

// Extensions that the compiler may use in the kernels.
extern const ExtensionSet kCompiledExtensions;
// Value of -march for the kernels, such as "native" and "x86-64-v3"; empty for the default of the compiler.
extern const char* const kCompiledArchitecture;
// Length of the vectors in kernels, in bytes.
extern const int kCompiledVectorBytes;

}  // namespace tapeformer::cpu
