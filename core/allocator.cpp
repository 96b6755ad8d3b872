#include "core/allocator.h"

#include "core/base/host_memory.h"
#include "core/cuda/memory.h"

namespace tapeformer {
namespace {

// Returns the memory limit for tensors on the CPU: the available memory minus a reserve for other
// allocations.
int64_t get_tensor_memory_limit() {
  const int64_t available = get_available_memory();
  return available - available / 16;
}

}  // namespace

CachingAllocator& get_device_allocator(Device device) {
  if (!device.is_cpu()) {
    if constexpr (kHasCuda)
      return cuda::get_allocator(device.index);
    else
      throw DeviceError("no allocator for " + device.to_string() + " in this build");
  }
  static auto* const cpu = new CachingAllocator(get_tensor_memory_limit());
  return *cpu;
}

}  // namespace tapeformer
