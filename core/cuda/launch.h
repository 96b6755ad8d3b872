// Launches of kernels on a CUDA device or in the emulation.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <utility>

#include "core/cuda/context.h"
#include "core/cuda/work_log.h"

namespace tapeformer::cuda {

// The memory accesses, the matrix products and the instructions of a launch, which WorkLog records.
struct LaunchWork {
  // Number of bytes that the kernel reads and writes. If `bytes` is -1, WorkLog uses the total size of the
  // arrays to which the arguments point.
  int64_t bytes = -1;
  // Number of bytes that the kernel both reads and writes. `bytes` counts each of these bytes once. WorkLog
  // adds updated_bytes to `bytes`, so that both the read and the write are counted.
  int64_t updated_bytes = 0;
  double flop = 0;                                  // number of floating-point operations in matrix products
  OperandType operand_type = OperandType::float32;  // operand type of these matrix products
  // Number of instructions of the kernel, summed over all warps. An instruction that the lanes of a warp
  // execute together counts once. If the number is unknown, the value is 0.
  double warp_instructions = 0;
};

// The configuration of a launch: the sizes of the grid and of the blocks, and the bytes of dynamic shared
// memory per block. A kernel accesses this memory with get_dynamic_shared_memory<T>().
struct LaunchConfig {
  dim3 grid, block;
  size_t shared_bytes;
  SourceLocation where;  // location of the launch in the source code, for error messages
  LaunchWork work = {};

  LaunchConfig(dim3 blocks, dim3 threads, size_t shared = 0,
               SourceLocation location = SourceLocation::current())
      : grid(blocks), block(threads), shared_bytes(shared), where(location) {}

  // Each of the following functions returns a copy of the launch with changed values in `work`.
  LaunchConfig with_bytes(int64_t bytes) const {
    LaunchConfig launch = *this;
    launch.work.bytes = bytes;
    return launch;
  }
  LaunchConfig with_updated_bytes(int64_t bytes) const {
    LaunchConfig launch = *this;
    launch.work.updated_bytes = bytes;
    return launch;
  }
  LaunchConfig with_warp_instructions(double count) const {
    LaunchConfig launch = *this;
    launch.work.warp_instructions = count;
    return launch;
  }
  // S is the type of the operands in memory.
  template <class S>
  LaunchConfig with_flop(double flop) const {
    LaunchConfig launch = *this;
    launch.work.flop = flop;
    launch.work.operand_type = sizeof(S) == 2   ? OperandType::bfloat16
                               : sizeof(S) == 8 ? OperandType::float64
                                                : OperandType::float32;
    return launch;
  }
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
// Adds the launch to the WorkLog of this thread, which must exist.
void log_launch(const LaunchConfig& launch, std::span<const ArgumentBytes> arguments);
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
  std::tuple<Parameters...> values(static_cast<Parameters>(arguments)...);
  if (WorkLog::current())
    std::apply(
        [&](const auto&... value) {
          const std::array<ArgumentBytes, sizeof...(Parameters)> bytes{
              ArgumentBytes(reinterpret_cast<const std::byte*>(&value), sizeof(value))...};
          detail::log_launch(shape, bytes);
        },
        values);
#ifdef TAPEFORMER_CUDA_EMULATED
  detail::launch_kernel(reinterpret_cast<const void*>(kernel), shape, nullptr);
  emulation::submit(
      [=, grid = shape.grid, block = shape.block, shared = shape.shared_bytes, where = shape.where] {
        emulation::run_grid(grid, block, shared, where, [&] { std::apply(kernel, values); });
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
