// A contract is written once and declared for both machines: kernels of the namespace cpu work on host memory
// and are done when they return; those of the namespace cuda have the same signatures, take device memory and
// work in the order of the current device's stream.
#pragma once

// A macro, because nothing else repeats declarations.
#define TAPEFORMER_ON_BOTH_MACHINES(...) \
  namespace cpu {                        \
  __VA_ARGS__                            \
  }                                      \
  namespace cuda {                       \
  __VA_ARGS__                            \
  }
