// The Transformer encoder (Vaswani et al. 2017) over any attention kind: post-norm as in "Transformers are
// RNNs", pre-norm, or reversible as in "Reformer" (models/reversible.h), with a final layer norm in all
// cases.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/attention/attention.h"
#include "models/layers/layers.h"

namespace tapeformer {

struct EncoderOptions {
  int64_t layers = 8, heads = 8, head_dim = 32, feedforward = 1024;
  std::string attention = "linear";
  OptionValues attention_options;
  double dropout = 0;            // of the attention branch, the hidden units and the feed-forward branch
  double attention_dropout = 0;  // of attention weights
  bool pre_norm = false;
  Activation activation = Activation::relu;
  bool recompute = false;          // keep one layer's activations at a time (autograd/recompute.h)
  bool reversible = false;         // keep no layer's activations (models/reversible.h); pre-norm only
  int64_t feedforward_chunks = 1;  // pieces that the rows of the feed-forward block are cut into

  int64_t width() const { return heads * head_dim; }
  // Of the encoder's result: a reversible one hands on both halves of its state.
  int64_t output_width() const { return reversible ? 2 * width() : width(); }
};

class MultiHeadAttention final : public Module {
 public:
  explicit MultiHeadAttention(const EncoderOptions& options);
  // x (batch, length, width); a tensor of the same shape and of dtype `result`, which is as for linear().
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                 const std::string& place, DType result) const;

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

  // The residual branches of the pre-norm form: dropout(attention(norm1 x)) of x (batch, length, width), and
  // dropout(feedforward(norm2 x)) of rows x (count, width) that begin at row `first` of the whole.
  Tensor attention_branch(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const;
  Tensor feedforward_branch(const Tensor& x, int64_t first, const ForwardContext& context) const;

  MultiHeadAttention attention;
  FeedForward feedforward;
  LayerNorm norm1, norm2;
  const bool pre_norm;

 private:
  DropoutMask mask_of(const char* place, const ForwardContext& context) const {
    return context.dropout(dropout_, place_ + place);
  }
  // feedforward(x) in chunks; x (batch, length, width)
  Tensor chunked_feedforward(const Tensor& x, const DropoutMask& hidden_mask, DType result) const;

  double dropout_;
  int64_t chunks_;
  std::string place_;
};

class Encoder final : public Module {
 public:
  // Throws ConfigError for a reversible encoder that is not pre-norm or recomputes.
  explicit Encoder(const EncoderOptions& options);
  // x (batch, length, width); result (batch, length, output_width), normalised.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context) const;

  const EncoderOptions& options() const { return options_; }

  std::vector<std::unique_ptr<EncoderLayer>> layers;
  LayerNorm norm;

 private:
  EncoderOptions options_;
};

}  // namespace tapeformer
