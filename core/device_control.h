// Functions that wait for a device, and that set the precision of matrix products on a device.
#pragma once

#include "core/device.h"

namespace tapeformer {

// Waits until the device has finished all work that this process has launched. For the CPU, returns
// immediately, because CPU kernels are synchronous. Tensor::item, Tensor::to_vector and copies to the CPU
// also wait for the device.
void synchronize(Device device);

// Precision of products of float32 matrices on a device.
enum class Precision : unsigned char {
  float32,
  tf32,      // CUDA devices only: operands are rounded to 10 mantissa bits
  bfloat16,  // linear layers round operands to bfloat16, and models store activations in bfloat16
};
// Sets the precision of a device for all later ops. The default is float32. Products are always summed in
// float32. Throws DeviceError for tf32 on the CPU. The function must not be called while another thread uses
// the device.
void set_precision(Device device, Precision precision);
Precision get_precision(Device device);

}  // namespace tapeformer
