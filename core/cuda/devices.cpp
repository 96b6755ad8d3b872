#include "core/cuda/devices.h"

#include <sstream>

#include "core/base/errors.h"
#include "core/cuda/probe.h"
#include "core/cuda/status.h"

namespace tapeformer::cuda {

#ifdef TAPEFORMER_CUDA_EMULATED

bool is_emulated() {
  return true;
}
std::string driver_version() {
  return "emulation";
}
std::string toolkit_version() {
  return "emulation";
}

#else

namespace {

std::string format_version(int version) {
  return version == 0 ? "none" : concat_text(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

bool is_emulated() {
  return false;
}
std::string driver_version() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) clear_error();
  return format_version(version);
}
std::string toolkit_version() {
  return format_version(CUDART_VERSION);
}

#endif

std::vector<DeviceInfo> list_devices() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    clear_error();
    return {};
  }
  std::vector<DeviceInfo> list;
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties;
    check_status(cudaGetDeviceProperties(&properties, index));
    list.push_back({properties.name, properties.major, properties.minor,
                    static_cast<int64_t>(properties.totalGlobalMem)});
  }
  return list;
}

std::string find_device_problem(int index) {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) clear_error();
  if (status == cudaErrorInsufficientDriver)
    return "no driver for CUDA " + toolkit_version() + " is installed (found: " + driver_version() + ")";
  if (status != cudaSuccess && status != cudaErrorNoDevice) return cudaGetErrorString(status);
  if (count == 0) return "this machine has no CUDA device";
  if (index >= count)
    return concat_text("this machine has ", count, " CUDA device", count > 1 ? "s" : "", ", cuda:0",
                       count > 1 ? concat_text(" to cuda:", count - 1) : "");
  try {
    if (can_run_kernels(index)) return "";
  } catch (const DeviceError& error) {  // for example, if another process has exclusive use of the device
    return error.what();
  }
  cudaDeviceProp properties;
  check_status(cudaGetDeviceProperties(&properties, index));
  std::string architectures;
  for (const std::string& name : compiled_architectures()) architectures += " " + name;
  return concat_text(properties.name, " has compute capability ", properties.major, ".", properties.minor,
                     ", and the kernels are compiled for", architectures,
                     "; build again with -DTAPEFORMER_CUDA_ARCHITECTURES=", properties.major,
                     properties.minor);
}

std::vector<std::string> compiled_architectures() {
  std::vector<std::string> list;
  std::istringstream words(TAPEFORMER_CUDA_ARCHITECTURES);
  for (std::string word; words >> word;) list.push_back(word);
  return list;
}

}  // namespace tapeformer::cuda
