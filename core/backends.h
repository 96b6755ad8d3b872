// The two backends, as types that select an overload. A kernel is declared for both backends with one name
// and one signature, and its first parameter is the Backend of its namespace. An unqualified call with a
// backend as the first argument finds the kernel in the namespace of the backend (argument-dependent lookup).
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

// Declares kernels in the namespaces of both backends.
#define TAPEFORMER_FOR_EACH_BACKEND(...) \
  namespace cpu {                        \
  __VA_ARGS__                            \
  }                                      \
  namespace cuda {                       \
  __VA_ARGS__                            \
  }
