// A type for each of the two backends, which selects the overload of a kernel. A kernel has the same name and
// signature for both backends, except for the first parameter, which is cpu::Backend or cuda::Backend. An
// unqualified call with a backend as the first argument finds the kernel in the namespace of the backend
// (argument-dependent lookup).
#pragma once

namespace tapeformer {

// The CPU backend. Its kernels use host memory and are synchronous.
namespace cpu {
struct Backend {};
}  // namespace cpu

// The CUDA backend. Its kernels use device memory and run asynchronously in the stream of current_device.
namespace cuda {
struct Backend {};
}  // namespace cuda

}  // namespace tapeformer

// Declares the same kernels in namespace cpu and in namespace cuda.
#define TAPEFORMER_FOR_EACH_BACKEND(...) \
  namespace cpu {                        \
  __VA_ARGS__                            \
  }                                      \
  namespace cuda {                       \
  __VA_ARGS__                            \
  }
