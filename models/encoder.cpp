#include "models/encoder.h"

#include "autograd/recompute.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {

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
                                   const std::string& place) const {
  const Shape split{x.size(0), x.size(1), heads_, head_dim_};
  const Tensor q = reshape(query_projection.forward(x), split);
  const Tensor k = shared_ ? q : reshape(key_projection.forward(x), split);
  const Tensor v = reshape(value_projection.forward(x), split);
  return out_projection.forward(reshape(attention_->forward(q, k, v, mask, context, place), x.shape()));
}

EncoderLayer::EncoderLayer(const EncoderOptions& options, std::string place)
    : attention(options),
      feedforward(options.width(), options.feedforward, options.activation),
      norm1(options.width()),
      norm2(options.width()),
      pre_norm(options.pre_norm),
      dropout_(options.dropout),
      place_(std::move(place)) {
  add_child("attention", attention);
  add_child("linear1", feedforward.linear1);
  add_child("linear2", feedforward.linear2);
  add_child("norm1", norm1);
  add_child("norm2", norm2);
}

Tensor EncoderLayer::forward(const Tensor& x, const AttentionMask& mask,
                             const ForwardContext& context) const {
  const DropoutMask attention_mask = context.dropout(dropout_, place_ + ".attention");
  const DropoutMask hidden_mask = context.dropout(dropout_, place_ + ".hidden");
  const DropoutMask out_mask = context.dropout(dropout_, place_ + ".out");
  if (pre_norm) {
    const Tensor y =
        add(x, dropout(attention.forward(norm1.forward(x), mask, context, place_), attention_mask));
    return add(y, dropout(feedforward.forward(norm2.forward(y), hidden_mask), out_mask));
  }
  const Tensor y = norm1.forward(x, attention.forward(x, mask, context, place_), attention_mask);
  return norm2.forward(y, feedforward.forward(y, hidden_mask), out_mask);
}

Encoder::Encoder(const EncoderOptions& options) : norm(options.width()), options_(options) {
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string name = "layers." + std::to_string(i);
    layers.push_back(std::make_unique<EncoderLayer>(options, name));
    add_child(name, *layers.back());
  }
  add_child("norm", norm);
}

Tensor Encoder::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const {
  Tensor y = x;
  for (const auto& layer : layers) {
    if (options_.recompute && recording()) {
      std::vector<Tensor> parameters;
      for (const auto& [name, tensor] : layer->parameters()) parameters.push_back(tensor);
      y = recompute([&layer = *layer, mask,
                     context](const std::vector<Tensor>& in) { return layer.forward(in[0], mask, context); },
                    {y}, parameters);
    } else {
      y = layer->forward(y, mask, context);
    }
  }
  return norm.forward(y);
}

}  // namespace tapeformer
