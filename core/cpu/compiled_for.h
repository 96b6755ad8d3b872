// The instruction set for which the CPU kernels of this program are compiled. A binary distribution contains
// one copy of the kernels for each supported level of x86-64, such as x86-64-v3. The dynamic loader selects
// the copy for the processor.
#pragma once

#include "core/base/instruction_set.h"

namespace tapeformer::cpu {

// Extensions that the compiler may use in the kernels.
extern const ExtensionSet kCompiledExtensions;
// Value of the compiler option -march for the kernels, such as "native" or "x86-64-v3". If empty, the kernels
// are compiled without this option.
extern const char* const kCompiledArchitecture;
// Length of the vectors in kernels, in bytes.
extern const int kCompiledVectorBytes;

}  // namespace tapeformer::cpu
