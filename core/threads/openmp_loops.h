// Parallel loops on the threads of OpenMP.
#pragma once

namespace tapeformer {

// Selects the threads of parallel_for: those of OpenMP, or those of this library (the default). A program
// that alternates with another library on OpenMP, such as PyTorch, needs the former: idle threads of both
// would spin, and take the processors from each other. Returns the former selection. Call it outside of
// loops.
bool set_loops_use_openmp(bool use);

}  // namespace tapeformer
