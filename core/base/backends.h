// The types cpu::Backend and cuda::Backend, which select the implementation of a kernel by overloading. The
// overloads of a kernel have the same name and the same parameters, except for the first parameter, which is
// the backend. An unqualified call finds the overload in the namespace of its first argument
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
