// The small layers, with PyTorch's parameter names and default initialisation.
#pragma once

#include "models/module.h"
#include "ops/conv1d.h"
#include "ops/linear.h"

namespace tapeformer {

// activation(x weightᵀ + bias); weight (out, in) and bias (out,) drawn from U(-1/√in, 1/√in).
class Linear final : public Module {
 public:
  Linear(int64_t in, int64_t out);
  // As the op linear().
  Tensor forward(const Tensor& x, Activation activation = Activation::none, const DropoutMask& dropout = {},
                 std::optional<DType> result = {}) const;

  Tensor weight, bias;
};

// relu(conv1d(x) + bias); weight (out, kernel, in) and bias (out,) drawn from U(-1/√(kernel in), 1/√(kernel
// in)).
class Conv1d final : public Module {
 public:
  Conv1d(int64_t in, int64_t out, int64_t kernel, const Conv1dOptions& options);
  // x (batch, frames, in) and its lengths; result (batch, steps, out).
  Tensor forward(const Tensor& x, const Tensor& lengths) const;

  Tensor weight, bias;

 private:
  Conv1dOptions options_;
};

// Rows of weight (count, dim), drawn from N(0, 1).
class Embedding final : public Module {
 public:
  Embedding(int64_t count, int64_t dim);
  Tensor forward(const Tensor& index) const;

  Tensor weight;
};

// Layer normalisation with weight 1 and bias 0 at the start, eps 1e-5.
class LayerNorm final : public Module {
 public:
  explicit LayerNorm(int64_t dim);
  Tensor forward(const Tensor& x) const;
  // forward(x + dropout(branch)), fused
  Tensor forward(const Tensor& x, const Tensor& branch, const DropoutMask& dropout) const;

  Tensor weight, bias;
};

// linear2(dropout(activation(linear1 x)))
class FeedForward {
 public:
  FeedForward(int64_t dim, int64_t hidden, Activation activation)
      : linear1(dim, hidden), linear2(hidden, dim), activation_(activation) {}
  // `result`: the dtype of the result, as for linear().
  Tensor forward(const Tensor& x, const DropoutMask& hidden_dropout, DType result) const;
  // forward() for its gradient alone: the result is not computed (linear_tape).
  Tensor tape(const Tensor& x, const DropoutMask& hidden_dropout, DType result) const;
  Activation activation() const { return activation_; }

  Linear linear1, linear2;

 private:
  Activation activation_;
};

}  // namespace tapeformer
