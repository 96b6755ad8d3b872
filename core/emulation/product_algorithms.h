// The matrix product algorithms of the emulated cuBLASLt. Tests assign product_algorithms to simulate slow or
// failing algorithms, and cublas_lt_version to simulate another version of cuBLASLt.
#pragma once

#include <array>
#include <cstddef>

namespace tapeformer::cuda::emulation {

struct EmulatedAlgorithm {
  // Simulated duration of each product. cudaEventElapsedTime() adds it to the measured time between events.
  double seconds = 0;
  bool fails = false;  // true: cublasLtMatmul() with this algorithm returns an error
};
inline constexpr std::array<EmulatedAlgorithm, 3> kDefaultProductAlgorithms = {{{0}, {1}, {2}}};
inline std::array<EmulatedAlgorithm, 3> product_algorithms = kDefaultProductAlgorithms;
// The result of cublasLtGetVersion().
inline size_t cublas_lt_version = 1;

}  // namespace tapeformer::cuda::emulation
