// Other names of functions in ops/view.h, for files with `using namespace std`. In such files, the names
// slice and stack are ambiguous, because std::slice and std::stack are types.
#pragma once

#include "ops/view.h"

namespace tapeformer {

inline constexpr auto& slice_in_dim = slice;
inline constexpr auto& stack_tensors = stack;

}  // namespace tapeformer
