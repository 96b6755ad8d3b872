// The precision of matrix products with float32 operands on CUDA devices.
#pragma once

#include "core/device.h"

namespace tapeformer::cuda {

enum class Precision : unsigned char {
  float32,
  tf32,      // cuBLAS rounds the operands to tf32, which has 10 mantissa bits
  bfloat16,  // linear layers round the operands to bfloat16, and models store activations in bfloat16
};
// get_precision() returns the precision of a device, which is float32 by default, and set_precision() changes
// it. In all modes, products are summed in float32. set_precision() must not be called while another thread
// uses the device.
Precision get_precision(Device device);
void set_precision(Device device, Precision precision);

}  // namespace tapeformer::cuda
