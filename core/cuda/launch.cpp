#include "core/cuda/launch.h"

#include <mutex>
#include <set>

#include "core/base/environment.h"

namespace tapeformer::cuda {

void detail::check_limits(const LaunchConfig& launch) {
  constexpr unsigned kMaxWidth = 2147483647, kMaxHeight = 65535, kMaxThreads = 1024;
  const dim3 &grid = launch.grid, &block = launch.block;
  check(grid.x <= kMaxWidth && grid.y <= kMaxHeight && grid.z <= kMaxHeight &&
            uint64_t{block.x} * block.y * block.z <= kMaxThreads,
        *current_op ? current_op : "launch", "a grid of ", grid.x, " x ", grid.y, " x ", grid.z,
        " blocks of ", block.x, " x ", block.y, " x ", block.z, " threads exceed the limits of a device, at ",
        launch.where.file, ":", launch.where.line);
}

#ifdef TAPEFORMER_CUDA_EMULATED

bool are_launches_synchronous() {
  return false;
}

void detail::launch_kernel(const void* kernel, const LaunchConfig& launch, void**) {
  static auto& mutex = *new std::mutex;
  static auto& loaded_kernels = *new std::set<const void*>;
  const bool is_recording = get_context().step_offset != nullptr;
  const std::scoped_lock lock(mutex);
  if (is_recording && !loaded_kernels.contains(kernel))
    throw DeviceError(concat_text(*current_op ? current_op : "a step", ": the kernel launched at ",
                                  launch.where.file, ":", launch.where.line,
                                  " has not run before the graph that it is recorded in"));
  loaded_kernels.insert(kernel);
}

#else

bool are_launches_synchronous() {
  static const bool is_requested = get_environment_flag("TAPEFORMER_CUDA_SYNC").value_or(false);
  return is_requested;
}

void detail::launch_kernel(const void* kernel, const LaunchConfig& launch, void** arguments) {
  // By default, a block can use 48 KiB of static and dynamic shared memory together. This constant leaves 24
  // KiB for static shared memory.
  constexpr size_t kMaxBytesWithoutAttribute = 24 << 10;
  const cudaStream_t stream = get_context().stream;
  if (launch.shared_bytes > kMaxBytesWithoutAttribute)
    check_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(launch.shared_bytes)),
                 launch.where);
  check_status(cudaLaunchKernel(kernel, launch.grid, launch.block, arguments, launch.shared_bytes, stream),
               launch.where);
  if (are_launches_synchronous() && !get_context().step_offset)
    check_status(cudaStreamSynchronize(stream), launch.where);
}

#endif

}  // namespace tapeformer::cuda
