#include "core/cuda/memory.h"

#include "core/cuda/context.h"
#include "core/cuda/devices.h"

namespace tapeformer::cuda {
namespace {

// The memory of a CUDA device, from which the caching allocator of the device takes its blocks.
class DeviceMemory final : public SystemAllocator {
 public:
  explicit DeviceMemory(int device) : device_{DeviceType::cuda, device} {}
  void* allocate(int64_t bytes) override {
    const DeviceScope scope(device_);
    get_context();
    void* block = nullptr;
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;  // permits cudaMalloc during a stream capture
    check_status(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t status = cudaMalloc(&block, static_cast<size_t>(bytes));
    check_status(cudaThreadExchangeStreamCaptureMode(&mode));
    if (status == cudaErrorMemoryAllocation) {
      clear_error();
      return nullptr;
    }
    check_status(status);
    return block;
  }
  // cudaFree waits for kernels that use the block.
  void release(void* block) noexcept override { cudaFree(block); }
  bool is_host_memory() const override { return is_emulated(); }

 private:
  Device device_;
};

}  // namespace

CachingAllocator& get_allocator(int index) {
  static auto& allocators = *new PerDevice<CachingAllocator>;
  return allocators.get(index, [&] {
    return new CachingAllocator(list_devices().at(static_cast<size_t>(index)).memory_bytes,
                                *new DeviceMemory(index));
  });
}

PinnedBuffer::PinnedBuffer(int64_t bytes) : bytes_(bytes) {
  check_not_capturing("takes pinned memory");
  check_status(cudaMallocHost(&data_, static_cast<size_t>(bytes)));
}
PinnedBuffer::~PinnedBuffer() {
  cudaFreeHost(data_);
}

}  // namespace tapeformer::cuda
