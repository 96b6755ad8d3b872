// The matrix products of a model, counted and timed: the yardstick that benchmarks hold a whole step against.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "models/autoregressive_model.h"

namespace tapeformer {

// c (m, n) = op(a) op(b), `count` times, with k summed over.
struct GemmShape {
  std::string name;
  int64_t m = 0, n = 0, k = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t count = 1;

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(count);
  }
};

// y = x weightᵀ of every linear layer on `rows` tokens; layers of one shape are one entry.
std::vector<GemmShape> forward_products(const AutoregressiveOptions& model, int64_t rows);
// The same and the two products of each layer's gradient: dx = dy weight and dweight = dyᵀ x.
std::vector<GemmShape> training_products(const AutoregressiveOptions& model, int64_t rows);
double total_flops(const std::vector<GemmShape>& products);

// Returns the operations of attention in a forward pass over one sequence, for all layers and heads, without
// recomputation. Throws ConfigError if the attention kind declares no `flops`.
double attention_flops(const AutoregressiveOptions& model, int64_t length);

// Runs the products on a machine, on buffers of its own: of float32, or of bfloat16 where a device is set to
// that precision.
class GemmWork {
 public:
  explicit GemmWork(std::vector<GemmShape> products, Device device = kCpu);
  const std::vector<GemmShape>& products() const { return products_; }
  // One pass over one shape (all its `count` products), or over all of them.
  void run(const GemmShape& shape) const;
  void run() const;

 private:
  std::vector<GemmShape> products_;
  Tensor a_, b_, c_;
};

}  // namespace tapeformer
