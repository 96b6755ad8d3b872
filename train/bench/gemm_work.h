// The matrix products of a model, without its other operations. Benchmarks compare the rate of a whole model
// with the rate of these products alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "models/autoregressive_model.h"

namespace tapeformer {

// The shape of `product_count` equal products c = op(a) op(b). The shapes of c, op(a) and op(b) are (m, n),
// (m, k) and (k, n). op(a) is aᵀ if `transpose_a` is true, and a otherwise. op(b) is bᵀ if `transpose_b` is
// true, and b otherwise.
struct GemmShape {
  std::string name;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t product_count = 1;

  double flop_count() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(product_count);
  }
  // Returns the number of elements of the operands and results of all `product_count` products.
  double element_count() const {
    const auto rows = static_cast<double>(m), columns = static_cast<double>(n),
               depth = static_cast<double>(k);
    return (rows * depth + depth * columns + rows * columns) * static_cast<double>(product_count);
  }
};

// Returns the shapes of the products y = x weightᵀ of all linear layers, for `rows` tokens. Layers of equal
// shape share an entry.
std::vector<GemmShape> list_forward_gemms(const AutoregressiveModelOptions& model, int64_t rows);
// Returns the shapes of the matrix products of all linear layers in the forward and backward pass, for `rows`
// tokens. The backward pass of a layer y = x weightᵀ computes dx = dy weight and dweight = dyᵀ x, where dy is
// the gradient of y.
std::vector<GemmShape> list_training_gemms(const AutoregressiveModelOptions& model, int64_t rows);
double sum_flops(const std::vector<GemmShape>& products);
double sum_elements(const std::vector<GemmShape>& products);

// Returns the number of floating-point operations of attention in a forward pass over one sequence, for all
// layers and heads. Throws ConfigError if the attention kind declares no `count_multiply_adds`.
double count_attention_flops(const AutoregressiveModelOptions& model, int64_t length);

// Returns the dtype of the operands of matrix products under the current precision of the device: float32 or
// bfloat16.
DType get_operand_dtype(Device device);

// An object that runs matrix products on a device. It owns the buffers of the operands and results, whose
// dtype is get_operand_dtype(device).
class GemmRunner {
 public:
  explicit GemmRunner(std::vector<GemmShape> products, Device device = kCpu);
  const std::vector<GemmShape>& products() const { return products_; }
  // run(shape) computes the `product_count` products of one shape. run() computes the products of all shapes.
  void run(const GemmShape& shape) const;
  void run() const;

 private:
  std::vector<GemmShape> products_;
  Tensor a_, b_, c_;
  // A float32 buffer for a weight or the gradient of a weight, for products that the CPU computes with the
  // kernels of linear layers. `weight_` is undefined on devices, and for float32 products on CPUs where
  // linear layers use OpenBLAS.
  Tensor weight_;
};

}  // namespace tapeformer
