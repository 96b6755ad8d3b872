// What core needs of the CUDA backend, without CUDA's headers. Defined in builds that have the backend
// (kHasCuda), the emulation included. Functions that name no device work on current_device, in stream order,
// and do not wait. Failures of CUDA throw DeviceError with the source location.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/allocator.h"
#include "core/tensor.h"

namespace tapeformer::cuda {

// True when the kernels of this build run on the CPU (core/emulation).
bool emulated();

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0;  // compute capability
  int64_t memory = 0;        // bytes
};
// The devices of the machine; none without a driver.
std::vector<DeviceInfo> devices();
// Why a device cannot be used (no driver, no such device, architecture not compiled in); empty when it can.
std::string problem_with(int index);
// The driver's and the toolkit's version of CUDA; "none" without a driver.
std::string driver_version();
std::string toolkit_version();
// What the kernels were compiled for: "90a", "100", …; a PTX version where the number stands for itself.
std::vector<std::string> compiled_architectures();

// How products of float32 matrices are computed on a device.
enum class Precision : unsigned char {
  float32,
  tf32,      // factors rounded to 10 bits behind the point on their way into the product
  bfloat16,  // factors of linear layers, and what models keep between them, in bfloat16; all else as float32
};
// float32 until something else is set. Sums are float32 in every case. Not to be changed while another thread
// works on the device.
Precision precision(Device device);
void set_precision(Device device, Precision precision);

CachingAllocator& allocator(int index);
// Waits until the device has done all its work.
void synchronize(Device device);

void fill_zero(void* data, int64_t bytes);
// Copies between devices and host. Waits when the target is host memory.
void copy_bytes(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);

// Elementwise, through the strides of both sides, which have one shape: converts dtypes.
void copy_elements(const Tensor& to, const Tensor& from);
void fill_elements(const Tensor& to, double value);
// to += scale from; floating dtypes
void add_elements(const Tensor& to, const Tensor& from, double scale);

}  // namespace tapeformer::cuda
