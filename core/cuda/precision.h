// The precision of matrix products of float32 tensors on CUDA devices.
#pragma once

#include "core/device.h"

namespace tapeformer::cuda {

enum class Precision : unsigned char {
  float32,
  tf32,      // cuBLAS rounds operands to 10 mantissa bits
  bfloat16,  // linear layers round operands to bfloat16, and models store activations in bfloat16
};
// Return and set the precision of a device. The default is float32. Sums are always float32. set_precision()
// must not be called while another thread uses the device.
Precision precision(Device device);
void set_precision(Device device, Precision precision);

}  // namespace tapeformer::cuda
