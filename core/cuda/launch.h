// Launches of kernels on a CUDA device or in the emulation.
#pragma once

#include <algorithm>
#include <cstdint>
#include <tuple>
#include <utility>

#include "core/base/errors.h"
#include "core/base/source_location.h"
#include "core/cuda/context.h"

namespace tapeformer::cuda {

// The configuration of a launch: the sizes of the grid and of the blocks, and the bytes of dynamic shared
// memory per block. A kernel accesses this memory with get_dynamic_shared_memory<T>().
struct LaunchConfig {
  dim3 grid, block;
  size_t shared_bytes;
  SourceLocation where;  // location of the launch in the source code, for error messages

  LaunchConfig(dim3 blocks, dim3 threads, size_t shared = 0,
               SourceLocation location = SourceLocation::current())
      : grid(blocks), block(threads), shared_bytes(shared), where(location) {}
};

inline constexpr int kDefaultBlockSize = 256;  // in threads

// Returns the configuration for a kernel with a grid-stride loop over n elements. The kernel uses
// first_element() and element_stride() (core/cuda/kernel.h) for the loop.
inline LaunchConfig make_elementwise_launch(int64_t n, SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxBlocks = 8192;  // enough blocks for full occupancy of any device
  const int64_t block_count = std::min<int64_t>((n + kDefaultBlockSize - 1) / kDefaultBlockSize, kMaxBlocks);
  return {dim3(static_cast<unsigned>(block_count)), dim3(kDefaultBlockSize), 0, where};
}

// Returns a launch with one block per row. blockIdx.x is the index of the row.
inline LaunchConfig make_row_launch(int64_t n, int threads = kDefaultBlockSize, size_t shared = 0,
                                    SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxRows = 2147483647;
  check(n <= kMaxRows, "launch", n, " rows exceed the maximum number of blocks of a grid");
  return {dim3(static_cast<unsigned>(n)), dim3(static_cast<unsigned>(threads)), shared, where};
}

// Returns a launch with `tiles` blocks per row. blockIdx.x is the index of the row, and blockIdx.y is the
// index of the tile.
inline LaunchConfig make_tile_launch(int64_t n, int64_t tiles, int threads, size_t shared,
                                     SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxTiles = 65535;
  check(tiles <= kMaxTiles, "launch", tiles, " tiles exceed the maximum number of blocks of a grid along y");
  LaunchConfig launch = make_row_launch(n, threads, shared, where);
  launch.grid.y = static_cast<unsigned>(tiles);
  return launch;
}

// Returns true if each launch waits until its kernel has finished. The environment variable
// TAPEFORMER_CUDA_SYNC=1 selects this mode. Returns false in the emulation, where a launch runs the kernel
// immediately.
bool are_launches_synchronous();

namespace detail {
// Throws ShapeError if the grid or the block exceeds the limits of CUDA.
void check_limits(const LaunchConfig& launch);
// On a device, launches the kernel, and throws DeviceError if CUDA reports an error. In the emulation,
// launch() runs the kernel, and launch_kernel() only throws DeviceError if a graph is being recorded and the
// kernel has not been launched before.
void launch_kernel(const void* kernel, const LaunchConfig& launch, void** arguments);
}  // namespace detail

// Launches kernel<<<grid, block, shared_bytes, stream>>>(arguments…) in the stream of current_device. If the
// grid has no blocks, does nothing. Throws ShapeError if the sizes exceed the limits of CUDA, and DeviceError
// with the location of the launch if CUDA reports an error. If are_launches_synchronous() is true and no
// graph is being recorded, waits for the kernel, so that CUDA reports an error inside the kernel at the
// launch instead of a later call.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchConfig& shape, const Arguments&... arguments) {
  if (shape.grid.x == 0 || shape.grid.y == 0 || shape.grid.z == 0) return;
  detail::check_limits(shape);
  ++launch_count;
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
#ifdef TAPEFORMER_CUDA_EMULATED
  detail::launch_kernel(reinterpret_cast<const void*>(kernel), shape, nullptr);
  emulation::submit([=, grid = shape.grid, block = shape.block, shared = shape.shared_bytes] {
    emulation::run_grid(grid, block, shared, [&] { std::apply(kernel, values); });
  });
#else
  std::apply(
      [&](auto&... value) {
        void* addresses[] = {&value...};
        detail::launch_kernel(reinterpret_cast<const void*>(kernel), shape, addresses);
      },
      values);
#endif
}

}  // namespace tapeformer::cuda
