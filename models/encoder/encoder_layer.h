// A layer of the Transformer. A layer has the residual branches self-attention and feed-forward and, in a
// decoder of a translation, cross-attention between them. Each has a layer norm and dropout. The templates of
// this file define the order of the operations, and an executor implements the operations. The executors in
// models/encoder/encoder_layer.cpp record the operations on the tape. The executor in
// models/encoder/encoder_step.cpp processes one token.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "models/attention/pattern.h"
#include "models/layers/layers.h"
#include "models/layers/option_error.h"
#include "ops/rotary.h"

namespace tapeformer {

struct EncoderOptions {
  int64_t layers = 8, heads = 8, head_dim = 32;
  int64_t feedforward = 1024;  // hidden units of the feed-forward branch; 0: layers have no such branch
  AttentionPattern attention = AttentionPattern(1);
  double dropout = 0;            // dropout probability of branch outputs and of hidden units
  double attention_dropout = 0;  // dropout probability of attention weights
  bool causal = true;            // whether all masks are causal
  bool rotary = false;           // rotates queries and keys by their positions (ops/rotary.h)
  double rotary_base = 10000;    // RotaryOptions::base
  double rotary_share = 1;       // share of the features of a head that is rotated, in (0, 1]
  RotaryScaling rotary_scaling = {};
  bool pre_norm = false;
  Activation activation = Activation::relu;
  bool recompute = false;  // backward recomputes each layer from its input (autograd/recompute.h)
  // Backward computes the inputs of each layer from its outputs, so only the output of the last layer is kept
  // (encoder/reversible.h).
  bool reversible = false;
  // Both halves of the state of reversible layers begin as the input, as in the code of "Reformer". If false,
  // the first half begins as zeros: the first branch reads the input from the second half.
  bool doubled_input = true;
  int64_t feedforward_chunks = 1;  // the feed-forward branch processes rows in this number of chunks
  int64_t max_length = 0;          // maximum number of tokens; 0: unlimited
  // Kinds of the cross-attention of a decoder, whose keys and values are projections of an EncodedSource. If
  // empty, the layers have no cross-attention.
  AttentionPattern cross_attention = {};
  double cross_attention_dropout = 0;  // as attention_dropout
  bool projection_biases = true;  // whether the projections of attention have biases, if the kinds have them
  bool out_bias = true;           // if false, the projection of the results of attention has no bias
  bool feedforward_biases = true;
  bool gated_feedforward = false;  // FeedForwardOptions::gated
  NormOptions norm = {};           // of all norms of the encoder
  // RMS norms of the queries and the keys of each head, before the rotation, in layers whose kind does not
  // normalise them.
  bool qk_norm = false;
  // Number of heads of keys and values of self-attention, a divisor of `heads`: head h of the queries reads
  // head h / (heads / kv_heads) of the keys (Ainslie et al. 2023, "GQA"). 0: `heads`.
  int64_t kv_heads = 0;
  int64_t model_width = 0;  // width of the residual stream; 0: heads * head_dim
  // The branches of a layer read the same input: x = x + attention(norm1(x)) + feedforward(norm2(x)).
  bool parallel_residual = false;
  // The final norm of reversible layers reads the mean of the halves and not their concatenation.
  bool average_halves = false;
  std::string name = {};  // prefix of the names of layers, such as "decoder."

  int64_t attention_width() const { return heads * head_dim; }
  int64_t width() const { return model_width > 0 ? model_width : attention_width(); }
  int64_t key_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  HeadSizes head_sizes() const { return {heads, key_heads(), key_heads(), head_dim, head_dim}; }
  // Returns the rotation of heads of `dim` features.
  RotaryOptions make_rotary_options(int64_t dim) const;
  // Returns the width of the encoder's result. With reversible layers, the result is the concatenation of two
  // tensors with width() features each, unless average_halves is true.
  int64_t output_width() const { return reversible && !average_halves ? 2 * width() : width(); }
};

// Checks the options and returns a list of invalid values and contradictions.
std::vector<OptionProblem> find_option_problems(const EncoderOptions& options);

// Residual branches of a layer.
enum class ResidualBranch { attention, cross_attention, feedforward };
// Returns the branches in their order.
std::span<const ResidualBranch> list_branches(bool has_cross_attention, bool has_feedforward);

// What cross-attention reads: the result of an encoder, (batch, source length, width), and the numbers of its
// valid rows, (batch,) int64. If `lengths` is undefined, all rows are valid.
struct EncodedSource {
  Tensor states = {}, lengths = {};
};

// The order of the norm, the branch and the residual sum in a layer.
enum class ResidualForm {
  post_norm,   // x = norm(x + dropout(branch(x))), "Attention is all you need" (Vaswani et al. 2017)
  pre_norm,    // x = x + dropout(branch(norm(x)))
  parallel,    // x = x + sum of dropout(branch(norm(x))) over the branches; GPT-J, GPT-NeoX
  reversible,  // x1 = x1 + dropout(branch(norm(x2))), then x1 and x2 swap; "Reformer" (Kitaev et al. 2020)
};

inline ResidualForm choose_residual_form(const EncoderOptions& options) {
  if (options.reversible) return ResidualForm::reversible;
  if (options.parallel_residual) return ResidualForm::parallel;
  return options.pre_norm ? ResidualForm::pre_norm : ResidualForm::post_norm;
}

// The tensors that pass from layer to layer.
struct HiddenStates {
  Tensor x1;
  Tensor x2 = {};  // defined in reversible layers only
  // In post-norm layers, an optional copy of `x1` in the dtype of matrix products, get_operand_dtype(x1).
  Tensor x1_operand = {};
};

// Returns dropout(branch(norm(x))), which a pre-norm or reversible layer adds to the residual.
template <class Executor>
Tensor run_residual_branch(const Executor& executor, ResidualBranch branch, const Tensor& x) {
  const LayerNormResult normalized = executor.norm(branch, x);
  return executor.dropout(branch, executor.run_branch(branch, normalized.result, normalized.operand));
}

// Applies the branches of one layer to the hidden states.
template <class Executor>
void run_layer(ResidualForm form, std::span<const ResidualBranch> branches, const Executor& executor,
               HiddenStates& states) {
  if (form == ResidualForm::parallel) {
    const Tensor x = states.x1;
    for (const ResidualBranch branch : branches)
      states.x1 = executor.sum_beside(x, states.x1, run_residual_branch(executor, branch, x));
    return;
  }
  for (const ResidualBranch branch : branches) {
    if (form == ResidualForm::post_norm) {
      const Tensor branch_result = executor.run_branch(branch, states.x1, states.x1_operand);
      const LayerNormResult normalized = executor.normalize_sum(branch, states.x1, branch_result);
      states.x1 = normalized.result;
      states.x1_operand = normalized.operand;
    } else if (form == ResidualForm::pre_norm) {
      states.x1 = executor.sum(states.x1, run_residual_branch(executor, branch, states.x1));
    } else {
      states.x1 = executor.sum(states.x1, run_residual_branch(executor, branch, states.x2));
      std::swap(states.x1, states.x2);
    }
  }
}

// Queries, keys and values of a layer, projected to heads. Queries and keys are undefined if the attention
// does not read them.
struct ProjectedHeads {
  Tensor query, key, value;
};

// Returns the multi-head self-attention of x. If the attention does not read queries, the values are passed
// to the attention as queries. If the attention does not read keys, the queries are passed to the attention
// as keys.
template <class Executor>
Tensor run_attention(const Executor& executor, const Tensor& x) {
  const ProjectedHeads heads = executor.project(x);
  const Tensor& v = heads.value;
  const Tensor q = heads.query.defined() ? executor.rotate(executor.normalize_queries(heads.query)) : v;
  const Tensor k = heads.key.defined() ? executor.rotate(executor.normalize_keys(heads.key)) : q;
  return executor.output(executor.attend(q, k, v));
}

// What a layer of self-attention reads and computes in a forward pass.
struct AttentionRecord {
  Tensor input, operand;  // x (batch, length, width), and x as an operand of matrix products
  Tensor heads;           // results of the heads, (batch, length, HeadSizes::result_width())
  Tensor result;          // result of the output projection, (batch, length, width)
};

class MultiHeadAttention final : public Module {
 public:
  // `layer` is the index of the layer and selects the attention kind from options.attention. See
  // AttentionSetup for `shared_parameter_source`. Throws OptionError if the attention kind rejects an option.
  explicit MultiHeadAttention(const EncoderOptions& options, int64_t layer = 0,
                              const Attention* shared_parameter_source = nullptr);
  // Computes the attention of x (batch, length, width) to itself or, if `source` (batch, source length,
  // width) is defined, to the source. `operand` is x converted to get_operand_dtype(x), or undefined. The
  // result has the shape of x and the dtype `result_dtype`, which is the dtype of x or get_operand_dtype(x).
  // `name` is the full name of the layer.
  Tensor forward(const Tensor& x, const Tensor& operand, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name, DType result_dtype,
                 const Tensor& source = {}) const;

  // Returns the keys and values of an encoded source (sources, length, width), each (sources, length, heads,
  // dim).
  ProjectedHeads project_source(const Tensor& source) const;

  // Returns the name in the segment memory of the inputs that the convolution of the layer `name` keeps.
  static std::string get_conv_memory_name(const std::string& name) { return name + ".conv"; }
  // Returns the convolution of the results of projections(), or null if there is none.
  const ShortConv* conv() const { return conv_.get(); }
  const Attention& inner_attention() const { return *attention_; }
  // Returns whether this layer rotates queries and keys by their positions. If the result is false, the model
  // has no rotary positions, or inner_attention() applies the rotary positions.
  bool rotates() const { return rotates_; }
  const RotaryOptions& rotary_options() const { return rotary_options_; }
  const HeadSizes& sizes() const { return sizes_; }
  // Return how many times the layer must repeat each head of queries, keys and values for inner_attention().
  int64_t count_query_copies() const { return sizes_.result_heads() / sizes_.query_heads; }
  int64_t count_key_copies() const { return repeats_keys_ ? sizes_.result_heads() / sizes_.key_heads : 1; }
  int64_t count_value_copies() const {
    return repeats_keys_ ? sizes_.result_heads() / sizes_.value_heads : 1;
  }
  // Returns the projections of the inputs that the attention reads, in the order of queries, keys and values.
  // The weights of these projections are adjacent in memory, and so are the biases.
  const std::vector<Linear*>& projections() const { return projections_; }
  // Splits the results of projections() [first, last) of some tokens, (…, width of the projections), in the
  // order of queries, keys and values, to the heads of sizes().
  ProjectedHeads split_heads(const Tensor& projected, size_t first, size_t last) const;

  Linear query_projection, key_projection, value_projection, out_projection;
  std::unique_ptr<Norm> query_norm, key_norm;  // null without qk_norm, or if the kind does not read the input

 private:
  struct TapeExecutor;

  MultiHeadAttention(const EncoderOptions& options, int64_t layer, const Attention* shared_parameter_source,
                     const HeadSizes& sizes);
  // Projects x to queries, and `source` to keys and values. x and `source` are (batch, rows, width). Each
  // projection is (batch, rows, heads, dim) with dtype `dtype`.
  ProjectedHeads project(const Tensor& x, const Tensor& source, const AttentionMask& mask,
                         const ForwardContext& context, const std::string& name, DType dtype,
                         const LayerState* state) const;
  // Returns projections [first, last) of x as one tensor, (batch, rows, width of the projections).
  Tensor project_jointly(const Tensor& x, size_t first, size_t last, DType dtype,
                         const ForwardContext* context = nullptr) const;

  HeadSizes sizes_;
  UsedAttentionInputs inputs_;
  std::vector<Linear*> projections_;
  bool accepts_bfloat16_, rotates_, repeats_keys_;
  RotaryOptions rotary_options_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<ShortConv> conv_;
};

class EncoderLayer final : public Module {
 public:
  // The full name of the layer is options.name + "layers.N", where N is `layer_index`. See AttentionSetup for
  // `shared_parameter_source`.
  EncoderLayer(const EncoderOptions& options, int64_t layer_index,
               const Attention* shared_parameter_source = nullptr);
  // Applies a post-norm or pre-norm layer to x (batch, length, width). The result has the shape of x.
  Tensor forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                 const EncodedSource& source = {}) const;
  // Applies the layer to `states`, whose tensors are (batch, length, width).
  void apply(HiddenStates& states, const AttentionMask& mask, const ForwardContext& context,
             const EncodedSource& source = {}) const;

  // Returns the result of run_residual_branch(). x is (count, width) for the feed-forward branch and
  // (batch, length, width) for the other branches. `first_row` is the index of the first row of x among the
  // rows of the whole batch. Dropout masks depend on it.
  Tensor run_branch(ResidualBranch branch, const Tensor& x, const AttentionMask& mask,
                    const ForwardContext& context, const EncodedSource& source, int64_t first_row) const;

  const std::string& name() const { return name_; }
  std::span<const ResidualBranch> branches() const {
    return list_branches(cross_attention != nullptr, has_feedforward_);
  }
  bool has_feedforward() const { return has_feedforward_; }
  const Norm& norm(ResidualBranch branch) const {
    if (branch == ResidualBranch::cross_attention) return *cross_norm;
    return branch == ResidualBranch::attention ? norm1 : norm2;
  }

  MultiHeadAttention attention;
  FeedForward feedforward;                              // without has_feedforward(): not used, and no child
  Norm norm1, norm2;                                    // of self-attention and of the feed-forward block
  std::unique_ptr<MultiHeadAttention> cross_attention;  // null without cross-attention
  std::unique_ptr<Norm> cross_norm;

 private:
  struct TapeExecutor;

  ResidualForm form_;
  bool has_feedforward_;
  double dropout_;
  int64_t feedforward_chunks_;
  std::string name_;
};

}  // namespace tapeformer
