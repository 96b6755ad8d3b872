// The affine map, fused with an activation and dropout.
#pragma once

#include <optional>

#include "autograd/tape.h"
#include "core/random/dropout.h"
#include "ops/kernels/linear.h"

namespace tapeformer {

// Returns dropout(activation(x weightᵀ + bias)). x is (…, in), the weight is (out, in), and the bias is
// (out,) or undefined. The result is (…, out) in the dtype of x. If x is bfloat16, the weight and the bias
// must be float32, and `result_dtype` can select a float32 result. Otherwise all tensors must have the same
// dtype. Throws ShapeError for mismatched shapes and dtypes.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias,
              Activation activation = Activation::none, const DropoutMask& dropout = {},
              std::optional<DType> result_dtype = {});

// Returns the dtype to which matrix products convert x. The dtype is bfloat16 if x is float32 and the
// precision of its device is bfloat16 (core/device_control.h), otherwise the dtype of x.
DType get_operand_dtype(const Tensor& x);
// Returns whether products of bfloat16 operands on the device use bfloat16 instructions. On the CPU, the
// result is true with AMX, and with oneDNN on a processor whose AVX512-BF16 instructions are faster than its
// float32 instructions. If the result is false, products convert bfloat16 operands to float32.
bool uses_bfloat16_instructions(Device device);
// Returns the name of the library that computes float32 products of linear layers on the CPU. The name of
// oneDNN includes its version.
std::string get_cpu_gemm_library_name();
// Returns x converted to get_operand_dtype(x). If several layers use x, call this function once and pass the
// result to all layers. If the operand dtype is bfloat16, x is then rounded only once, and the tape keeps x
// in bfloat16 for backward().
Tensor convert_to_operand_dtype(const Tensor& x);

// Runs the backward pass of linear(x, weight, bias) without computing the result. `gradient` is the gradient
// of the result.
void run_linear_backward(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& gradient);

}  // namespace tapeformer
