// Linear layers: y = dropout(activation(x wᵀ + bias)). x is (rows, in), w is (out, in), bias is (out,) or
// null, and y is (rows, out).
#pragma once

#include <cstdint>
#include <memory>

#include "core/backends.h"
#include "core/dropout.h"
#include "core/dtype.h"

namespace tapeformer {

enum class Activation { none, relu, gelu };  // gelu: the exact form, x Φ(x)

struct LinearShape {
  int64_t rows, in, out;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y. If the activation is gelu, also writes its input x wᵀ + bias to `pre` (rows, out). Other
    // activations ignore `pre`. X and Y are the same type, or X is bfloat16 and Y float32. The kernel rounds
    // float32 operands of the products to bfloat16 if X is bfloat16 or the precision of the device is
    // bfloat16.
    template <class X, class Y>
    void linear_forward(Backend, const LinearShape& shape, const X* x, const Compute<X>* w,
                        const Compute<X>* bias, Activation activation, const DropoutMask& dropout, Y* pre,
                        Y* y);

    // Computes the gradients from g (rows, out). Each of gx (rows, in), gw (out, in) and gbias (out,) may be
    // null. The gradient of relu reads `y`, and the gradient of gelu reads `pre`.
    template <class X, class Y>
    void linear_backward(Backend, const LinearShape& shape, const Y* g, const X* x, const Compute<X>* w,
                         Activation activation, const DropoutMask& dropout, const Y* pre, const Y* y, X* gx,
                         Compute<X>* gw, Compute<X>* gbias);

)

namespace cpu {

// Returns whether products of bfloat16 operands use bfloat16 instructions.
bool has_bfloat16_products();
// Returns the name of the library that computes float32 products.
std::string product_library();

// A weight that is prepared for repeated products, as in decoding. The products convert the weight and x to
// O, which is T, or BFloat16 if T is float.
template <class O>
class DecodingWeight {
 public:
  using T = Compute<O>;

  // Copies w (out, in). The products have at most shape.rows rows.
  DecodingWeight(const LinearShape& shape, const T* w);
  ~DecodingWeight();

  // Computes y (rows, out) = activation(x (rows, in) wᵀ + bias). gelu requires `pre`, memory for (rows, out)
  // elements. Takes no memory from the allocator.
  void multiply(int64_t rows, const T* x, const T* bias, Activation activation, T* pre, T* y) const;

 private:
  struct Storage;
  LinearShape shape_;
  std::unique_ptr<Storage> storage_;
};

}  // namespace cpu
}  // namespace tapeformer
