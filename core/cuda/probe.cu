#include "core/cuda/probe.h"

#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "core/cuda/backend.h"
#include "core/cuda/launch.h"

namespace tapeformer::cuda {

#ifdef TAPEFORMER_CUDA_EMULATED

bool emulated() {
  return true;
}
bool kernels_run_on(int) {
  return true;
}
bool synchronous() {
  return false;
}
void clear_error() {}
std::string driver_version() {
  return "emulation";
}
std::string toolkit_version() {
  return "emulation";
}

namespace detail {

void start(const void* kernel, const Launch& launch, void**) {
  static auto& mutex = *new std::mutex;
  static auto& loaded = *new std::set<const void*>;
  const bool recorded = context().later != nullptr;
  const std::scoped_lock lock(mutex);
  if (recorded && !loaded.contains(kernel))
    throw DeviceError(concat_text(*current_op ? current_op : "a step", ": the kernel launched at ",
                                  launch.where.file_name(), ":", launch.where.line(),
                                  " has not run before the graph that it is recorded in"));
  loaded.insert(kernel);
}

}  // namespace detail

#else

namespace {

__global__ void do_nothing() {}

std::string version_text(int version) {
  return version == 0 ? "none" : concat_text(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

bool emulated() {
  return false;
}

bool synchronous() {
  static const bool wanted = [] {
    const char* text = std::getenv("TAPEFORMER_CUDA_SYNC");
    return text && std::string(text) != "0" && std::string(text) != "";
  }();
  return wanted;
}

bool kernels_run_on(int index) {
  int previous = 0;
  cudaGetDevice(&previous);
  check_status(cudaSetDevice(index));
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, do_nothing);
  if (status != cudaSuccess) clear_error();
  check_status(cudaSetDevice(previous));
  if (status != cudaErrorNoKernelImageForDevice && status != cudaErrorInvalidDeviceFunction)
    check_status(status);
  return status == cudaSuccess;
}

void clear_error() {
  cudaGetLastError();
}

std::string driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) clear_error();
  return version_text(version);
}

std::string toolkit_version() {
  return version_text(CUDART_VERSION);
}

namespace detail {

void start(const void* kernel, const Launch& launch, void** arguments) {
  // Dynamic shared memory that every kernel may have: of 48 KiB, what is left beside its static arrays.
  constexpr size_t kWithoutAsking = 24 << 10;
  const cudaStream_t stream = context().stream;
  if (launch.shared_bytes > kWithoutAsking)
    check_status(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                      static_cast<int>(launch.shared_bytes)),
                 launch.where);
  check_status(cudaLaunchKernel(kernel, launch.grid, launch.block, arguments, launch.shared_bytes, stream),
               launch.where);
  if (synchronous() && !context().later) check_status(cudaStreamSynchronize(stream), launch.where);
}

}  // namespace detail

#endif

}  // namespace tapeformer::cuda
