#include "models/layers/layers.h"

#include <cmath>

#include "models/layers/segment_memory.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/view.h"

namespace tapeformer {

Linear::Linear(int64_t in, int64_t out, const LinearOptions& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  if (options.owns_weight) add_parameter("weight", weight, {out, in}, make_uniform_initializer(bound));
  if (options.has_bias) add_parameter("bias", bias, {out}, make_uniform_initializer(bound));
}

Tensor Linear::forward(const Tensor& x, Activation activation, const DropoutMask& dropout,
                       std::optional<DType> result_dtype) const {
  return linear(x, weight, bias, activation, dropout, result_dtype);
}

ShortConv::ShortConv(const Options& options) : options_(options) {
  const int64_t kernel = options.kernel;
  if (kernel == 0) {
    weight = Tensor::full({options.channels, 1}, 1);
    add_buffer("weight", weight);
    return;
  }
  const int64_t current = kernel - 1 - lookahead(options.causal);
  const auto set_identity = [=](const Tensor& parameter, const RandomStream&) {
    for (int64_t i = 0; i < parameter.numel(); ++i)
      parameter.data<double>()[i] = i % kernel == current ? 1 : 0;
  };
  add_parameter("weight", weight, {options.channels, kernel},
                options.starts_as_identity
                    ? Initializer(set_identity)
                    : make_uniform_initializer(1 / std::sqrt(static_cast<double>(kernel))));
}

Tensor ShortConv::forward(const Tensor& x, bool causal, const Tensor& lengths, SegmentMemory* memory,
                          const std::string& name) const {
  ShortConvOptions options{
      .lookahead = lookahead(causal), .activation = options_.activation, .lengths = lengths};
  if (memory) {
    const Tensor rows = memory->read(name, x.size(0));
    if (rows.defined()) options.history = pad(rows.to(x.dtype()), 1, weight.size(1) - 1 - rows.size(1), 0);
    memory->write(name, x);
  }
  return short_conv(x, weight, options);
}

Conv1dRelu::Conv1dRelu(int64_t in, int64_t out, int64_t kernel, const Conv1dOptions& options)
    : options_(options) {
  const double bound = 1 / std::sqrt(static_cast<double>(kernel * in));
  add_parameter("weight", weight, {out, kernel, in}, make_uniform_initializer(bound));
  add_parameter("bias", bias, {out}, make_uniform_initializer(bound));
}

Tensor Conv1dRelu::forward(const Tensor& x, const Tensor& lengths) const {
  return relu(conv1d(x, weight, bias, lengths, options_));
}

Embedding::Embedding(int64_t count, int64_t dim, double std) {
  add_parameter("weight", weight, {count, dim}, make_normal_initializer(std));
}

Tensor Embedding::forward(const Tensor& index) const {
  return embedding(weight, index);
}

LayerNorm::LayerNorm(int64_t dim) {
  add_parameter("weight", weight, {dim}, make_constant_initializer(1));
  add_parameter("bias", bias, {dim}, make_constant_initializer(0));
}

Tensor LayerNorm::forward(const Tensor& x) const {
  return layer_norm(x, weight, bias);
}
Tensor LayerNorm::forward(const Tensor& x, const Tensor& branch, const DropoutMask& dropout) const {
  return residual_layer_norm(x, branch, weight, bias, dropout);
}
LayerNormResult LayerNorm::forward_with_operand(const Tensor& x) const {
  return layer_norm_with_operand(x, weight, bias);
}
LayerNormResult LayerNorm::forward_with_operand(const Tensor& x, const Tensor& branch,
                                                const DropoutMask& dropout) const {
  return residual_layer_norm_with_operand(x, branch, weight, bias, dropout);
}

Tensor FeedForward::compute_hidden(const Tensor& x, const DropoutMask& dropout) const {
  return linear1.forward(convert_to_operand_dtype(x), activation_, dropout);
}
Tensor FeedForward::forward(const Tensor& x, const DropoutMask& hidden_dropout, DType result_dtype) const {
  return linear2.forward(compute_hidden(x, hidden_dropout), Activation::none, {}, result_dtype);
}
void FeedForward::run_backward(const Tensor& x, const DropoutMask& hidden_dropout, const Tensor& g) const {
  run_linear_backward(compute_hidden(x, hidden_dropout), linear2.weight, linear2.bias, g);
}

}  // namespace tapeformer
