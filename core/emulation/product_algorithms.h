// The algorithms that the emulation of cuBLASLt offers for matrix products. Tests change them.
#pragma once

#include <array>
#include <cstddef>

namespace tapeformer::cuda::emulation {

struct ProductAlgorithm {
  double seconds = 0;  // added to the time that events measure for a product
  bool fails = false;  // whether products with the algorithm fail
};
inline constexpr std::array<ProductAlgorithm, 3> kProductAlgorithms = {{{0}, {1}, {2}}};
inline std::array<ProductAlgorithm, 3> product_algorithms = kProductAlgorithms;
inline size_t product_library_version = 1;

}  // namespace tapeformer::cuda::emulation
