// The one way to start a kernel, for the device and for its emulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "core/cuda/context.h"

namespace tapeformer::cuda {

// Blocks and threads of a launch, and bytes of dynamic shared memory (dynamic_shared<T>() in the kernel).
struct Launch {
  dim3 grid, block;
  size_t shared_bytes;
  SourceLocation where;

  Launch(dim3 blocks, dim3 threads, size_t shared = 0, SourceLocation location = SourceLocation::current())
      : grid(blocks), block(threads), shared_bytes(shared), where(location) {}
};

inline constexpr int kThreads = 256;

// For kernels whose threads go over n elements in strides (first_element, element_stride).
inline Launch over_elements(int64_t n, SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMostBlocks = 8192;  // more threads than any device holds at once
  const int64_t blocks = std::min<int64_t>((n + kThreads - 1) / kThreads, kMostBlocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, where};
}

// One block for each of n rows, with a grid as wide as CUDA allows: block_row() in the kernel.
inline Launch over_rows(int64_t n, int threads = kThreads, size_t shared = 0,
                        SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kWidest = 2147483647;
  check(n <= kWidest, "launch", n, " rows are more than a grid has blocks");
  return {dim3(static_cast<unsigned>(n)), dim3(static_cast<unsigned>(threads)), shared, where};
}

// The same with `tiles` blocks along y for each row.
inline Launch over_tiles(int64_t n, int64_t tiles, int threads, size_t shared,
                         SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMostTiles = 65535;
  check(tiles <= kMostTiles, "launch", tiles, " tiles are more than a grid has blocks along y");
  Launch launch = over_rows(n, threads, shared, where);
  launch.grid.y = static_cast<unsigned>(tiles);
  return launch;
}

// Returns true if the host waits for each kernel, because TAPEFORMER_CUDA_SYNC=1 is set in the environment.
// Always false in the emulation, where a launch runs at once.
bool synchronous();

namespace detail {
// Throws ShapeError if the shape exceeds the limits of CUDA.
void check_limits(const Launch& launch);
// On a device: launches. In the emulation: throws DeviceError for a kernel that is launched for the first
// time while a graph is recorded.
void start(const void* kernel, const Launch& launch, void** arguments);
}  // namespace detail

// kernel<<<grid, block, shared, stream>>>(arguments…) on the current device's stream. No blocks, no launch.
// Throws DeviceError with the place of the call; TAPEFORMER_CUDA_SYNC=1 in the environment waits for each
// kernel, so that what fails inside it is reported there too.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& shape, const Arguments&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  detail::check_limits(shape);
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
#ifdef TAPEFORMER_CUDA_EMULATED
  detail::start(reinterpret_cast<const void*>(kernel), shape, nullptr);
  emulation::submit([=, grid = shape.grid, block = shape.block, shared = shape.shared_bytes] {
    emulation::run_grid(grid, block, shared, [&] { std::apply(kernel, values); });
  });
#else
  std::apply(
      [&](auto&... value) {
        void* addresses[] = {&value...};
        detail::start(reinterpret_cast<const void*>(kernel), shape, addresses);
      },
      values);
#endif
}

}  // namespace tapeformer::cuda
