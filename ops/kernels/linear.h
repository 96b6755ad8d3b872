// Kernels of linear layers, which compute y = dropout(activation(x wᵀ + bias)). x is (rows, in), w is (out,
// in), bias is (out,) or null, and y is (rows, out).
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/backends.h"
#include "core/base/dtype.h"
#include "core/random/dropout.h"

namespace tapeformer {

// gelu: the exact form, x Φ(x); gelu_tanh: its approximation with tanh; silu: x sigmoid(x)
enum class Activation { none, relu, gelu, gelu_tanh, silu };

// Returns whether the gradient of the activation needs its input.
constexpr bool needs_preactivation(Activation activation) {
  return activation == Activation::gelu || activation == Activation::gelu_tanh ||
         activation == Activation::silu;
}

struct LinearShape {
  int64_t rows, in, out;
};

// How a weight is stored for decoding: in the type of the operands of products, or in blocks of 32 8-bit
// integers with one scale (Q8_0 of GGUF files).
enum class WeightFormat { operand, int8 };

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y = dropout(activation(x wᵀ + bias)). If needs_preactivation(activation) is true, also writes
    // x wᵀ + bias to `preactivation` (rows, out).
    //
    // X and Y are the same type, or X is bfloat16 and Y is float32. If X is bfloat16, or if the precision of
    // the device is bfloat16, float32 operands of matrix products are rounded to bfloat16.
    template <class X, class Y>
    void linear_forward(Backend, const LinearShape& shape, const X* x, const Compute<X>* w,
                        const Compute<X>* bias, Activation activation, const DropoutMask& dropout,
                        Y* preactivation, Y* y);

    // Computes gx (rows, in), gw (out, in) and gbias (out,) from g (rows, out), the gradient of y. If one of
    // the three pointers is null, its gradient is not computed. The gradient of relu reads `y`, and the
    // gradients of the smooth activations read `preactivation`.
    template <class X, class Y>
    void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const Compute<X>* w,
                         Activation activation, const DropoutMask& dropout, const Y* preactivation,
                         const Y* y, X* gx, Compute<X>* gw, Compute<X>* gbias);

)

namespace cpu {

// Returns whether products of bfloat16 operands use the bfloat16 instructions of the CPU.
bool uses_bfloat16_instructions();
std::string get_gemm_library_name();

// Rounds the elements of w (rows, columns) to the values of WeightFormat::int8.
void round_to_int8_blocks(int64_t rows, int64_t columns, float* w);

// A copy of the weight of a linear layer, in a layout for fast products with few rows. Decoding creates the
// copy once, and calls forward() for each token. The template parameter O is the operand type of the
// products: float, double or BFloat16. Inputs and results have the type T, which is float if O is BFloat16,
// and O otherwise.
template <class O>
class DecodingWeight {
 public:
  using T = Compute<O>;

  // Copies w (out, in). shape.rows is the maximum number of rows of forward(). WeightFormat::int8 needs float
  // operands.
  DecodingWeight(const LinearShape& shape, const T* w, WeightFormat format = WeightFormat::operand);
  ~DecodingWeight();

  // Computes y = activation(x wᵀ + bias), with x (rows, in) and y (rows, out). If `preactivation` (rows, out)
  // is not null and the activation needs it, also writes x wᵀ + bias. Does not use the caching allocator.
  // Uses a buffer of the object, so calls must not overlap.
  void forward(int64_t rows, const T* x, const T* bias, Activation activation, T* preactivation, T* y) const;

 private:
  struct Storage;
  LinearShape shape_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace cpu
}  // namespace tapeformer
