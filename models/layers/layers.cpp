#include "models/layers/layers.h"

#include <algorithm>
#include <cmath>

#include "models/layers/low_rank.h"
#include "models/layers/segment_memory.h"
#include "ops/elementwise.h"
#include "ops/gated_activation.h"
#include "ops/index.h"
#include "ops/rms_norm.h"
#include "ops/view.h"

namespace tapeformer {

namespace {

JoinedLinear join(const std::vector<Tensor>& weights, const std::vector<const Linear*>& layers) {
  const auto has_bias = [](const Linear* layer) { return layer->bias.defined(); };
  const bool needs_biases = std::any_of(layers.begin(), layers.end(), has_bias);
  std::vector<Tensor> biases;
  for (const Linear* layer : layers) {
    const Tensor& w = layer->weight;
    if (needs_biases)
      biases.push_back(layer->bias.defined() ? layer->bias
                                             : Tensor::zeros({w.size(0)}, w.dtype(), w.device()));
  }
  return {concat(weights, 0), needs_biases ? concat(biases, 0) : Tensor{}};
}

Tensor activate(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::none:
      return x;
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::silu:
      return silu(x);
    case Activation::gelu_tanh:
      return gated_activation(concat({x, Tensor::full(x.shape(), 1, x.dtype(), x.device())}, -1), activation);
  }
  return x;
}

}  // namespace

Linear::Linear(int64_t in, int64_t out, const LinearOptions& options) {
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  if (options.owns_weight) add_parameter("weight", weight, {out, in}, make_uniform_initializer(bound));
  if (options.has_bias) add_parameter("bias", bias, {out}, make_uniform_initializer(bound));
}

Tensor Linear::forward(const Tensor& x, Activation activation, const DropoutMask& dropout,
                       std::optional<DType> result_dtype, const AdapterContext& adapter_context) const {
  if (!adapter_) return linear(x, weight, bias, activation, dropout, result_dtype);
  const Tensor y = forward_jointly({this}, x, result_dtype.value_or(x.dtype()), adapter_context);
  return tapeformer::dropout(activate(y, activation), dropout);
}

Linear::~Linear() = default;

void Linear::add_adapter(const LowRankOptions& options, const std::string& name) {
  check(takes_adapter && !adapter_, "Linear", "the layer ", name, " takes no adapter");
  adapter_ = std::make_unique<LowRankAdapter>(weight.size(1), weight.size(0), options, name);
  adapter_->convert(weight.dtype());
  adapter_->move(weight.device());
  add_child("", *adapter_);
}

Tensor Linear::compute_merged_weight() const {
  if (!adapter_) return weight;
  const NoGradScope no_grad;
  return add(detach(weight), adapter_->compute_product());
}

void Linear::merge_adapter() {
  if (!adapter_) return;
  weight.copy_from(compute_merged_weight());
  remove_child(*adapter_);
  adapter_.reset();
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
  if (options.has_bias) add_parameter("bias", bias, {options.channels}, make_constant_initializer(0));
}

Tensor ShortConv::add_bias(const Tensor& sums) const {
  if (!bias.defined()) return sums;
  const Tensor y = add(cast(sums, bias.dtype()), bias);
  const Tensor result = options_.activation == GateActivation::silu      ? silu(y)
                        : options_.activation == GateActivation::sigmoid ? sigmoid(y)
                                                                         : y;
  return cast(result, sums.dtype());
}

Tensor ShortConv::forward(const Tensor& x, bool causal, const Tensor& lengths, SegmentMemory* memory,
                          const std::string& name) const {
  ShortConvOptions options{.lookahead = lookahead(causal), .activation = op_activation(), .lengths = lengths};
  if (memory) {
    const Tensor rows = memory->read(name, x.size(0));
    if (rows.defined()) options.history = pad(rows.to(x.dtype()), 1, weight.size(1) - 1 - rows.size(1), 0);
    memory->write(name, x);
  }
  return add_bias(short_conv(x, weight, options));
}

Tensor ShortConv::read_tokens(const Tensor& x, const Tensor& history) const {
  const int64_t kept = history.size(1);
  if (kept == 0) return add_bias(short_conv(x, weight, {.activation = op_activation()}));
  const Tensor before = history.to(x.dtype());
  const Tensor all = concat({before, x}, 1);
  history.copy_from(slice(all, 1, x.size(1), x.size(1) + kept));
  return add_bias(short_conv(x, weight, {.activation = op_activation(), .history = before}));
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

Norm::Norm(int64_t dim, const NormOptions& options) : options_(options) {
  add_parameter("weight", weight, {dim}, make_constant_initializer(options.offset ? 0 : 1));
  if (options.kind == NormKind::layer) add_parameter("bias", bias, {dim}, make_constant_initializer(0));
}

Tensor Norm::get_factors() const {
  return options_.offset ? add(weight, 1) : weight;
}

Tensor Norm::forward(const Tensor& x) const {
  if (options_.kind == NormKind::layer) return layer_norm(x, weight, bias, options_.eps);
  return rms_norm(x, get_factors(), {.eps = options_.eps});
}
Tensor Norm::forward(const Tensor& x, const Tensor& branch, const DropoutMask& mask) const {
  if (options_.kind == NormKind::layer)
    return residual_layer_norm(x, branch, weight, bias, mask, options_.eps);
  return forward(add(x, dropout(cast(branch, x.dtype()), mask)));
}
LayerNormResult Norm::forward_with_operand(const Tensor& x) const {
  if (options_.kind == NormKind::layer) return layer_norm_with_operand(x, weight, bias, options_.eps);
  const Tensor result = forward(x);
  return {result, convert_to_operand_dtype(result)};
}
LayerNormResult Norm::forward_with_operand(const Tensor& x, const Tensor& branch,
                                           const DropoutMask& mask) const {
  if (options_.kind == NormKind::layer)
    return residual_layer_norm_with_operand(x, branch, weight, bias, mask, options_.eps);
  const Tensor result = forward(x, branch, mask);
  return {result, convert_to_operand_dtype(result)};
}

DecodingNorm Norm::make_decoding_norm() const {
  const NoGradScope no_grad;
  return {get_factors(), bias, options_.eps};
}

JoinedLinear join_layers(const std::vector<const Linear*>& layers) {
  std::vector<Tensor> weights;
  for (const Linear* layer : layers) weights.push_back(layer->weight);
  return join(weights, layers);
}

JoinedLinear join_merged_layers(const std::vector<const Linear*>& layers) {
  std::vector<Tensor> weights;
  for (const Linear* layer : layers) weights.push_back(layer->compute_merged_weight());
  return join(weights, layers);
}

Tensor forward_jointly(const std::vector<const Linear*>& layers, const Tensor& x, DType result_dtype,
                       const AdapterContext& adapter_context) {
  const JoinedLinear joined =
      layers.size() == 1 ? JoinedLinear{layers[0]->weight, layers[0]->bias} : join_layers(layers);
  std::vector<PlacedAdapter> adapters;
  int64_t column = 0;
  for (const Linear* layer : layers) {
    if (layer->adapter()) adapters.push_back({layer->adapter(), column});
    column += layer->weight.size(0);
  }
  if (adapters.empty()) return linear(x, joined.weight, joined.bias, Activation::none, {}, result_dtype);
  const DType sum_dtype = joined.weight.dtype();
  Tensor y = linear(x, joined.weight, joined.bias, Activation::none, {}, sum_dtype);
  return cast(
      add_adapter_results(adapters, x, std::move(y), adapter_context.context, adapter_context.first_row),
      result_dtype);
}

FeedForward::FeedForward(int64_t dim, int64_t hidden, const FeedForwardOptions& options)
    : linear1(dim, hidden, {.has_bias = options.has_biases}),
      linear2(hidden, dim, {.has_bias = options.has_biases}),
      linear3(options.gated
                  ? std::make_unique<Linear>(dim, hidden, LinearOptions{.has_bias = options.has_biases})
                  : nullptr),
      options_(options) {
  add_child("linear1", linear1);
  add_child("linear2", linear2);
  linear1.takes_adapter = linear2.takes_adapter = true;
  if (!linear3) return;
  add_child("linear3", *linear3);
  linear3->takes_adapter = true;
  keep_adjacent({&linear1.weight, &linear3->weight});
  if (options.has_biases) keep_adjacent({&linear1.bias, &linear3->bias});
}

std::vector<const Linear*> FeedForward::list_input_layers() const {
  return linear3 ? std::vector<const Linear*>{&linear1, linear3.get()} : std::vector<const Linear*>{&linear1};
}

Tensor FeedForward::compute_hidden(const Tensor& x, const DropoutMask& dropout,
                                   const AdapterContext& adapter_context) const {
  const Tensor operand = convert_to_operand_dtype(x);
  if (!linear3) return linear1.forward(operand, options_.activation, dropout, {}, adapter_context);
  return gated_activation(forward_jointly(list_input_layers(), operand, operand.dtype(), adapter_context),
                          options_.activation, dropout);
}

Tensor FeedForward::forward(const Tensor& x, const DropoutMask& hidden_dropout, DType result_dtype,
                            const AdapterContext& adapter_context) const {
  return linear2.forward(compute_hidden(x, hidden_dropout, adapter_context), Activation::none, {},
                         result_dtype, adapter_context);
}

void FeedForward::run_backward(const Tensor& x, const DropoutMask& hidden_dropout, const Tensor& g,
                               const AdapterContext& adapter_context) const {
  if (linear2.adapter()) return backward(forward(x, hidden_dropout, g.dtype(), adapter_context), g);
  run_linear_backward(compute_hidden(x, hidden_dropout, adapter_context), linear2.weight, linear2.bias, g);
}

}  // namespace tapeformer
