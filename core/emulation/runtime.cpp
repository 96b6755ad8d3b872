#include "core/emulation/runtime.h"

#include <unistd.h>

#include <cstdlib>

#include "core/emulation/global_memory.h"

namespace {

constexpr size_t kDeviceAlignment = 256;  // alignment of the blocks that cudaMalloc() allocates, in bytes

}  // namespace

cudaError_t cudaMalloc(void** block, size_t bytes) {
  if (posix_memalign(block, kDeviceAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  std::memset(*block, 0xFF, bytes);  // elements of each floating-point type are then NaN
  tapeformer::cuda::emulation::register_global_memory(*block, bytes);
  return cudaSuccess;
}

cudaError_t cudaFree(void* block) {
  tapeformer::cuda::emulation::unregister_global_memory(block);
  std::free(block);
  return cudaSuccess;
}

cudaError_t cudaMallocHost(void** block, size_t bytes) {
  return cudaMalloc(block, bytes);
}

cudaError_t cudaFreeHost(void* block) {
  return cudaFree(block);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int index) {
  if (index != 0) return cudaErrorInvalidDevice;
  *properties = {};
  std::strcpy(properties->name, "emulation on the CPU");
  properties->major = 9;
  properties->totalGlobalMem =
      static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return cudaSuccess;
}

const char* cudaGetErrorName(cudaError_t status) {
  switch (status) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorStreamCaptureUnsupported:
      return "cudaErrorStreamCaptureUnsupported";
  }
  return "?";
}

const char* cudaGetErrorString(cudaError_t status) {
  return cudaGetErrorName(status);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  if (tapeformer::cuda::emulation::captured_work) return cudaErrorStreamCaptureUnsupported;
  tapeformer::cuda::emulation::captured_work = new std::vector<std::function<void()>>;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t* graph) {
  auto* const work = std::exchange(tapeformer::cuda::emulation::captured_work, nullptr);
  if (!work) return cudaErrorInvalidValue;
  *graph = new EmulatedGraph{std::move(*work)};
  delete work;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = new EmulatedGraph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t) {
  if (tapeformer::cuda::emulation::captured_work) return cudaErrorStreamCaptureUnsupported;
  for (const auto& run : executable->work) run();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
