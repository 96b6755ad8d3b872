// Basic layers, with PyTorch's parameter names and default initialisation.
#pragma once

#include <memory>
#include <vector>

#include "models/layers/module.h"
#include "ops/conv1d.h"
#include "ops/inference.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/short_conv.h"

namespace tapeformer {

struct LinearOptions {
  bool owns_weight = true;  // if false, the parent module must set `weight` with add_alias()
  bool has_bias = true;
};

class LowRankAdapter;   // models/layers/low_rank.h
struct LowRankOptions;  // models/layers/low_rank.h

// What the dropout of adapters depends on. The row `first_row` of the whole batch is the first row of the
// input. If `context` is null, there is no dropout.
struct AdapterContext {
  const ForwardContext* context = nullptr;
  int64_t first_row = 0;
};

// A linear layer with an optional activation: activation(x weightᵀ + bias). weight (out, in) and bias (out,)
// are initialised from U(-1/√in, 1/√in). Without a bias, `bias` is undefined.
class Linear final : public Module {
 public:
  Linear(int64_t in, int64_t out, const LinearOptions& options = {});
  ~Linear() override;
  // Computes linear() (ops/linear.h) of x, `weight` and `bias`, plus the result of the adapter.
  Tensor forward(const Tensor& x, Activation activation = Activation::none, const DropoutMask& dropout = {},
                 std::optional<DType> result_dtype = {}, const AdapterContext& adapter_context = {}) const;

  // Adds an adapter with the dtype and the device of the weight. `name` is the full name of the layer.
  void add_adapter(const LowRankOptions& options, const std::string& name);
  // Adds the product of the adapter to the weight, and removes the adapter.
  void merge_adapter();
  // Returns the adapter, or null if there is none.
  const LowRankAdapter* adapter() const { return adapter_.get(); }
  // Returns the weight, to which the product of the adapter is added. The result is not recorded.
  Tensor compute_merged_weight() const;

  Tensor weight, bias;
  // Whether the passes of the parent module use the adapter. add_adapter() must not be called otherwise.
  bool takes_adapter = false;

 private:
  std::unique_ptr<LowRankAdapter> adapter_;
};

// A depthwise convolution over time (ops/short_conv.h) with an activation. If `causal` is false, the kernel
// is centred. The bias (channels,), which is added before the activation, is 0 at first. weight (channels,
// kernel) is initialised from U(-1/√n, 1/√n) with n = kernel or, if `starts_as_identity` is true, to 1 for
// the current token and 0 for the others. If the kernel is 0, there is only the activation.
class ShortConv final : public Module {
 public:
  struct Options {
    int64_t channels = 0, kernel = 0;
    GateActivation activation = GateActivation::none;
    bool causal = true, starts_as_identity = false, has_bias = false;
  };
  explicit ShortConv(const Options& options);
  // Maps x (batch, length, channels) to the same shape. A causal mask needs a causal convolution. See
  // ShortConvOptions for `lengths`. If `memory` is not null, the inputs before x are those that the previous
  // segment has written under `name`.
  Tensor forward(const Tensor& x, bool causal, const Tensor& lengths, SegmentMemory* memory = nullptr,
                 const std::string& name = {}) const;

  // Returns the causal result for x after the tokens in `history` (batch, kernel - 1, channels), which then
  // receives the newest tokens.
  Tensor read_tokens(const Tensor& x, const Tensor& history) const;

  GateActivation activation() const { return options_.activation; }
  // The activation of the op short_conv(): the bias is added to the result of the op.
  GateActivation op_activation() const { return bias.defined() ? GateActivation::none : options_.activation; }

  Tensor weight, bias;  // `bias` is undefined without a bias

 private:
  // Returns the number of later tokens that a result reads.
  int64_t lookahead(bool causal) const { return causal ? 0 : options_.kernel / 2; }
  // Adds the bias, if there is one, and applies the activation then.
  Tensor add_bias(const Tensor& sums) const;

  Options options_;
};

// A convolution over frames, followed by ReLU: relu(conv1d(x, weight, bias)). weight (out, kernel, in) and
// bias (out,) are drawn from U(-1/√n, 1/√n) with n = kernel * in.
class Conv1dRelu final : public Module {
 public:
  Conv1dRelu(int64_t in, int64_t out, int64_t kernel, const Conv1dOptions& options);
  // Maps x (batch, frames, in) to (batch, steps, out), where steps = count_conv1d_steps(frames, kernel,
  // options). `lengths` (batch,), int64 on the CPU, contains the number of valid frames of each sequence. If
  // `lengths` is undefined, all frames are valid.
  Tensor forward(const Tensor& x, const Tensor& lengths) const;

  Tensor weight, bias;

 private:
  Conv1dOptions options_;
};

// A table of `count` vectors, which are the rows of `weight` (count, dim). `weight` is initialised from N(0,
// std²).
class Embedding final : public Module {
 public:
  Embedding(int64_t count, int64_t dim, double std = 1);
  // Returns the rows of `weight` at the indices `index`. The result has the shape index.shape() + (dim,).
  Tensor forward(const Tensor& index) const;

  Tensor weight;
};

enum class NormKind { layer, rms };

struct NormOptions {
  NormKind kind = NormKind::layer;
  double eps = kLayerNormEps;  // added to the variance, or to the mean square
  bool offset = false;         // an RMS norm multiplies by 1 + weight, and the initial weight is 0
};

// Layer normalisation (ops/norm.h) or RMS normalisation (ops/rms_norm.h) of rows (…, dim). The initial weight
// is 1 or, with an offset, 0; the initial bias is 0. RMS norms have no bias. If `eps` is 0, the result of a
// row of zeros is not finite.
class Norm final : public Module {
 public:
  explicit Norm(int64_t dim, const NormOptions& options = {});
  // x is float32 or float64; for an RMS norm, x can also be bfloat16.
  Tensor forward(const Tensor& x) const;
  // Computes forward(x + dropout(branch)); for a layer norm, in one op.
  Tensor forward(const Tensor& x, const Tensor& branch, const DropoutMask& dropout) const;
  // Returns the result of forward(), and the same result in the dtype of the operands of matrix products.
  LayerNormResult forward_with_operand(const Tensor& x) const;
  LayerNormResult forward_with_operand(const Tensor& x, const Tensor& branch,
                                       const DropoutMask& dropout) const;
  // Returns the norm with the current parameters, for decoding.
  DecodingNorm make_decoding_norm() const;

  Tensor weight, bias;  // (dim,); `bias` is undefined for an RMS norm

 private:
  Tensor get_factors() const;

  NormOptions options_;
};

struct FeedForwardOptions {
  Activation activation = Activation::relu;
  bool gated = false;  // the hidden units are activation(linear1(x)) * linear3(x), as in SwiGLU
  bool has_biases = true;
};

// The feed-forward block linear2(dropout(activation(linear1(x)))), or linear2(dropout(activation(linear1(x))
// * linear3(x))) if it is gated (Shazeer 2020, "GLU Variants Improve Transformer").
class FeedForward final : public Module {
 public:
  FeedForward(int64_t dim, int64_t hidden, const FeedForwardOptions& options);
  // Applies the block to x (…, dim). The result has dtype `result_dtype`.
  Tensor forward(const Tensor& x, const DropoutMask& hidden_dropout, DType result_dtype,
                 const AdapterContext& adapter_context = {}) const;
  // Recomputes the hidden activations and runs the backward pass of forward(). `g` is the gradient of the
  // result.
  void run_backward(const Tensor& x, const DropoutMask& hidden_dropout, const Tensor& g,
                    const AdapterContext& adapter_context = {}) const;
  const FeedForwardOptions& options() const { return options_; }
  // Returns linear1 or, in a gated block, linear1 and linear3, whose weights and biases are adjacent in
  // memory.
  std::vector<const Linear*> list_input_layers() const;

  Linear linear1, linear2;
  std::unique_ptr<Linear> linear3;  // null if the block is not gated

 private:
  Tensor compute_hidden(const Tensor& x, const DropoutMask& dropout,
                        const AdapterContext& adapter_context) const;

  FeedForwardOptions options_;
};

// Layers with one input, which are computed by one matrix product. The biases are undefined if no layer has
// one. If only some layers have a bias, the others have the bias 0.
struct JoinedLinear {
  Tensor weight, bias;
};
// Joins layers without their adapters.
JoinedLinear join_layers(const std::vector<const Linear*>& layers);
// Joins layers for decoding, with Linear::compute_merged_weight().
JoinedLinear join_merged_layers(const std::vector<const Linear*>& layers);
// Returns the results of layers with the input x (…, in), one after another: (…, sum of the outs). The result
// has dtype `result_dtype`.
Tensor forward_jointly(const std::vector<const Linear*>& layers, const Tensor& x, DType result_dtype,
                       const AdapterContext& adapter_context = {});

}  // namespace tapeformer
