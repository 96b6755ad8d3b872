// Kernel launches, for devices and for the emulation.
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

// Work of a launch that WorkLog cannot determine from the arguments.
struct LaunchWork {
  // Bytes read and written. -1: the total size of the arrays to which the arguments point.
  int64_t bytes = -1;
  // Size of the arrays that the kernel reads and writes in place. Added to `bytes`.
  int64_t updated_bytes = 0;
  double flop = 0;                          // floating-point operations of matrix products
  OperandType type = OperandType::float32;  // operand type of the matrix products
};

// Grid and block sizes of a launch, and the bytes of its dynamic shared memory (dynamic_shared<T>() in the
// kernel).
struct Launch {
  dim3 grid, block;
  size_t shared_bytes;
  SourceLocation where;
  LaunchWork work = {};

  Launch(dim3 blocks, dim3 threads, size_t shared = 0, SourceLocation location = SourceLocation::current())
      : grid(blocks), block(threads), shared_bytes(shared), where(location) {}

  // Return a copy of the launch with changed work: moving() sets `bytes`, updating() sets `updated_bytes`,
  // and multiplying() sets `flop` and `type`.
  Launch moving(int64_t bytes) const {
    Launch launch = *this;
    launch.work.bytes = bytes;
    return launch;
  }
  Launch updating(int64_t bytes) const {
    Launch launch = *this;
    launch.work.updated_bytes = bytes;
    return launch;
  }
  // `S` is the stored type of the operands.
  template <class S>
  Launch multiplying(double flop) const {
    Launch launch = *this;
    launch.work.flop = flop;
    launch.work.type = sizeof(S) == 2   ? OperandType::bfloat16
                       : sizeof(S) == 8 ? OperandType::float64
                                        : OperandType::float32;
    return launch;
  }
};

inline constexpr int kThreads = 256;  // default number of threads per block

// Returns a launch for a kernel whose threads loop over n elements (first_element, element_stride).
inline Launch over_elements(int64_t n, SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxBlocks = 8192;  // enough blocks to occupy any device
  const int64_t blocks = std::min<int64_t>((n + kThreads - 1) / kThreads, kMaxBlocks);
  return {dim3(static_cast<unsigned>(blocks)), dim3(kThreads), 0, where};
}

// Returns a launch with one block per row; blockIdx.x is the row.
inline Launch over_rows(int64_t n, int threads = kThreads, size_t shared = 0,
                        SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxWidth = 2147483647;
  check(n <= kMaxWidth, "launch", n, " rows exceed the maximum number of blocks of a grid");
  return {dim3(static_cast<unsigned>(n)), dim3(static_cast<unsigned>(threads)), shared, where};
}

// Returns a launch with one block per row along x and `tiles` blocks along y.
inline Launch over_tiles(int64_t n, int64_t tiles, int threads, size_t shared,
                         SourceLocation where = SourceLocation::current()) {
  constexpr int64_t kMaxTiles = 65535;
  check(tiles <= kMaxTiles, "launch", tiles, " tiles exceed the maximum number of blocks of a grid along y");
  Launch launch = over_rows(n, threads, shared, where);
  launch.grid.y = static_cast<unsigned>(tiles);
  return launch;
}

// Returns true if the host waits for each kernel, because TAPEFORMER_CUDA_SYNC=1 is set in the environment.
// Always false in the emulation, where a launch runs immediately.
bool synchronous();

namespace detail {
// Throws ShapeError if the grid or the block exceeds the limits of CUDA.
void check_limits(const Launch& launch);
// Launches the kernel on a device. In the emulation, throws DeviceError if the kernel is launched for the
// first time while a graph is recorded.
void start(const void* kernel, const Launch& launch, void** arguments);
// Adds the launch to the log of this thread, which must exist.
void log_launch(const Launch& launch, std::span<const ArgumentBytes> arguments);
}  // namespace detail

// Launches kernel<<<grid, block, shared, stream>>>(arguments…) in the stream of current_device. Does nothing
// for a grid without blocks. Throws DeviceError with the location of the call. If TAPEFORMER_CUDA_SYNC=1 is
// set in the environment, waits for the kernel, so that its errors are reported here.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const Launch& shape, const Arguments&... arguments) {
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
  detail::start(reinterpret_cast<const void*>(kernel), shape, nullptr);
  emulation::submit(
      [=, grid = shape.grid, block = shape.block, shared = shape.shared_bytes, where = shape.where] {
        emulation::run_grid(grid, block, shared, where, [&] { std::apply(kernel, values); });
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
