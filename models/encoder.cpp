#include "models/encoder.h"

#include "autograd/chunked.h"
#include "autograd/recompute.h"
#include "models/reversible.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

const EncoderOptions& checked(const EncoderOptions& options) {
  if (options.reversible && !options.pre_norm)
    throw ConfigError(
        "a reversible encoder normalises before each block: set model.norm = \"pre\" or model.reversible = "
        "false");
  if (options.reversible && options.recompute)
    throw ConfigError("a reversible encoder recomputes anyway: set model.recompute = false");
  return options;
}

}  // namespace

MultiHeadAttention::MultiHeadAttention(const EncoderOptions& options)
    : query_projection(options.width(), options.width()),
      key_projection(options.width(), options.width()),
      value_projection(options.width(), options.width()),
      out_projection(options.width(), options.width()),
      heads_(options.heads),
      head_dim_(options.head_dim) {
  const AttentionKind& kind = attention_kind(options.attention);
  shared_ = kind.capabilities.shared_query_key;
  attention_ = kind.make(options.attention_options, options.attention_dropout);
  add_child("query_projection", query_projection);
  if (!shared_) add_child("key_projection", key_projection);
  add_child("value_projection", value_projection);
  add_child("out_projection", out_projection);
}

Tensor MultiHeadAttention::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                                   const std::string& place, DType result) const {
  const Shape split{x.size(0), x.size(1), heads_, head_dim_};
  const Tensor factor = as_operand(x);
  const Tensor q = reshape(query_projection.forward(factor), split);
  const Tensor k = shared_ ? q : reshape(key_projection.forward(factor), split);
  const Tensor v = reshape(value_projection.forward(factor), split);
  const Tensor attended = reshape(attention_->forward(q, k, v, mask, context, place), x.shape());
  return out_projection.forward(attended, Activation::none, {}, result);
}

EncoderLayer::EncoderLayer(const EncoderOptions& options, std::string place)
    : attention(options),
      feedforward(options.width(), options.feedforward, options.activation),
      norm1(options.width()),
      norm2(options.width()),
      pre_norm(options.pre_norm),
      dropout_(options.dropout),
      chunks_(options.feedforward_chunks),
      place_(std::move(place)) {
  add_child("attention", attention);
  add_child("linear1", feedforward.linear1);
  add_child("linear2", feedforward.linear2);
  add_child("norm1", norm1);
  add_child("norm2", norm2);
}

Tensor EncoderLayer::attention_branch(const Tensor& x, const AttentionMask& mask,
                                      const ForwardContext& context) const {
  return dropout(attention.forward(norm1.forward(x), mask, context, place_, x.dtype()),
                 mask_of(".attention", context));
}

Tensor EncoderLayer::feedforward_branch(const Tensor& x, int64_t first, const ForwardContext& context) const {
  const DropoutMask hidden_mask =
      mask_of(".hidden", context).from(first * feedforward.linear1.weight.size(0));
  const DropoutMask out_mask = mask_of(".out", context).from(first * x.size(-1));
  return dropout(feedforward.forward(norm2.forward(x), hidden_mask, x.dtype()), out_mask);
}

Tensor EncoderLayer::chunked_feedforward(const Tensor& x, const DropoutMask& hidden_mask,
                                         DType result) const {
  if (chunks_ <= 1) return feedforward.forward(x, hidden_mask, result);
  const auto mask_from = [this, hidden_mask](int64_t first) {
    return hidden_mask.from(first * feedforward.linear1.weight.size(0));
  };
  const auto rows_forward = [this, mask_from, result](const Tensor& rows, int64_t first) {
    return feedforward.forward(rows, mask_from(first), result);
  };
  const auto rows_tape = [this, mask_from, result](const Tensor& rows, int64_t first) {
    return feedforward.tape(rows, mask_from(first), result);
  };
  const Tensor rows = reshape(x, {x.size(0) * x.size(1), x.size(2)});
  return reshape(chunked(rows_forward, rows, chunks_,
                         {feedforward.linear1.weight, feedforward.linear1.bias, feedforward.linear2.weight,
                          feedforward.linear2.bias},
                         rows_tape),
                 x.shape());
}

Tensor EncoderLayer::forward(const Tensor& x, const AttentionMask& mask,
                             const ForwardContext& context) const {
  const DropoutMask hidden_mask = mask_of(".hidden", context), out_mask = mask_of(".out", context);
  if (pre_norm) {
    const Tensor y = add(x, attention_branch(x, mask, context));
    return add(y, dropout(chunked_feedforward(norm2.forward(y), hidden_mask, y.dtype()), out_mask));
  }
  const DType branch = operand_dtype(x);
  const Tensor y =
      norm1.forward(x, attention.forward(x, mask, context, place_, branch), mask_of(".attention", context));
  return norm2.forward(y, chunked_feedforward(y, hidden_mask, branch), out_mask);
}

Encoder::Encoder(const EncoderOptions& options) : norm(checked(options).output_width()), options_(options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    layers.push_back(std::make_unique<EncoderLayer>(options, name));
    add_child(name, *layers.back());
  }
  add_child("norm", norm);
}

Tensor Encoder::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const {
  if (options_.reversible)
    return norm.forward(reversible_stack(layers, options_.feedforward_chunks, x, mask, context));
  const bool recomputed = options_.recompute && recording();
  const ReplayContext replay(context, recomputed);
  Tensor y = x;
  for (const auto& layer : layers) {
    if (recomputed) {
      y = recompute([&layer = *layer, mask,
                     replay](const std::vector<Tensor>& in) { return layer.forward(in[0], mask, *replay); },
                    {y}, tensors_of(layer->parameters()));
    } else {
      y = layer->forward(y, mask, context);
    }
  }
  return norm.forward(y);
}

}  // namespace tapeformer
