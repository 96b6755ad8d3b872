// The algorithms that the emulation of cuBLASLt has for matrix products. Tests change product_algorithms and
// product_library_version.
#pragma once

#include <array>
#include <cstddef>

namespace tapeformer::cuda::emulation {

struct ProductAlgorithm {
  double seconds = 0;  // added to the time of a product that CUDA events measure
  bool fails = false;  // true: cublasLtMatmul() with this algorithm returns an error
};
// The initial value of product_algorithms.
inline constexpr std::array<ProductAlgorithm, 3> kProductAlgorithms = {{{0}, {1}, {2}}};
inline std::array<ProductAlgorithm, 3> product_algorithms = kProductAlgorithms;
// The result of cublasLtGetVersion().
inline size_t product_library_version = 1;

}  // namespace tapeformer::cuda::emulation
