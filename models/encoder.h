// The Transformer encoder (Vaswani et al. 2017) over any attention kind: post-norm as in "Transformers are
// RNNs", or pre-norm, with a final layer norm in both cases.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/attention/attention.h"
#include "models/layers.h"

namespace tapeformer {

struct EncoderOptions {
  int64_t layers = 8, heads = 8, head_dim = 32, feedforward = 1024;
  std::string attention = "linear";
  OptionValues attention_options;
  double dropout = 0;            // of the attention branch, the hidden units and the feed-forward branch
  double attention_dropout = 0;  // of attention weights
  bool pre_norm = false;
  Activation activation = Activation::relu;
  bool recompute = false;  // keep one layer's activations at a time (autograd/recompute.h)

  int64_t width() const { return heads * head_dim; }
};

class MultiHeadAttention final : public Module {
 public:
  explicit MultiHeadAttention(const EncoderOptions& options);
  // x (batch, length, width); result of the same shape.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                 const std::string& place) const;

  const Attention& kind() const { return *attention_; }
  bool shares_query_and_key() const { return shared_; }

  Linear query_projection, key_projection, value_projection, out_projection;

 private:
  int64_t heads_, head_dim_;
  bool shared_;
  std::unique_ptr<Attention> attention_;
};

class EncoderLayer final : public Module {
 public:
  EncoderLayer(const EncoderOptions& options, std::string place);
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const;

  MultiHeadAttention attention;
  FeedForward feedforward;
  LayerNorm norm1, norm2;
  const bool pre_norm;

 private:
  double dropout_;
  std::string place_;
};

class Encoder final : public Module {
 public:
  explicit Encoder(const EncoderOptions& options);
  // x (batch, length, width); result of the same shape, normalised.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const;

  const EncoderOptions& options() const { return options_; }

  std::vector<std::unique_ptr<EncoderLayer>> layers;
  LayerNorm norm;

 private:
  EncoderOptions options_;
};

}  // namespace tapeformer
