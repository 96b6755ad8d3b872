#include "models/encoder/encoder_layer.h"

#include <algorithm>

#include "autograd/chunked.h"
#include "core/base/interruption.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/split.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

void check_attention_result(const Tensor& attention_result, const Shape& expected, DType dtype,
                            const char* name) {
  check(attention_result.defined(), name, "the attention kind returned an undefined tensor");
  check(attention_result.shape() == expected && attention_result.dtype() == dtype, name,
        "the attention kind must return ", expected, " ", name_of(dtype), ", not ", attention_result.shape(),
        " ", name_of(attention_result.dtype()));
}

LinearOptions make_projection_options(const EncoderOptions& options, int64_t layer, bool is_out = false) {
  const AttentionLayerChoice& choice = find_layer_choice(options.attention, layer);
  return {.has_bias = options.projection_biases && (options.out_bias || !is_out) &&
                      find_attention_kind(choice.kind).capabilities.has_projection_biases};
}

// Returns the options of the cross-attention, whose keys have no order.
EncoderOptions make_cross_options(EncoderOptions options) {
  options.attention = options.cross_attention;
  options.attention_dropout = options.cross_attention_dropout;
  options.causal = options.rotary = options.qk_norm = false;
  options.kv_heads = 0;
  return options;
}

// Returns the convolution of the results of the projections, or null if there is none.
std::unique_ptr<ShortConv> make_conv(const ProjectionConv& conv, const std::vector<Linear*>& projections,
                                     bool causal) {
  if (!conv.is_active()) return nullptr;
  int64_t channels = 0;
  for (const Linear* projection : projections) channels += projection->weight.size(0);
  return std::make_unique<ShortConv>(ShortConv::Options{.channels = channels,
                                                        .kernel = conv.kernel,
                                                        .activation = conv.activation,
                                                        .causal = causal,
                                                        .starts_as_identity = conv.starts_as_identity,
                                                        .has_bias = conv.has_bias});
}

std::unique_ptr<Norm> make_head_norm(const EncoderOptions& options, int64_t dim, bool is_needed) {
  if (!options.qk_norm || !is_needed) return nullptr;
  return std::make_unique<Norm>(
      dim, NormOptions{.kind = NormKind::rms, .eps = options.norm.eps, .offset = options.norm.offset});
}

using Problems = std::vector<OptionProblem>;

void check_rotary(const EncoderOptions& options, Problems& problems) {
  if (!options.rotary) return;
  const int64_t features = options.make_rotary_options(options.head_dim).features;
  if (options.rotary_share == 1 && options.head_dim % 2 != 0)
    problems.push_back({"head_dim", concat_text("rotary positions rotate pairs of features: expected an even "
                                                "number, got ",
                                                options.head_dim)});
  else if (options.rotary_share != 1 && (features < 2 || features % 2 != 0))
    problems.push_back({"rotary_share", concat_text("expected a share of head_dim = ", options.head_dim,
                                                    " that is an even number of features, got ", features)});
  const RotaryScaling& scaling = options.rotary_scaling;
  if (scaling.kind != RotaryScalingKind::llama3 && scaling.kind != RotaryScalingKind::yarn) return;
  if (scaling.length == 0)
    problems.push_back({"rotary_length",
                        "this scaling needs the longest text of the earlier training: expected at least 1"});
  if (scaling.fast <= scaling.slow)
    problems.push_back({"rotary_fast", concat_text("expected more turns than rotary_slow = ", scaling.slow,
                                                   ", got ", scaling.fast)});
}

void check_heads(const EncoderOptions& options, Problems& problems) {
  if (options.heads % options.key_heads() != 0)
    problems.push_back({"kv_heads", concat_text("expected a divisor of heads = ", options.heads, ", got ",
                                                options.key_heads())});
  for (const AttentionLayerChoice& choice : options.attention) {
    const AttentionKind& kind = find_attention_kind(choice.kind);
    const UsedAttentionInputs inputs = kind.get_used_inputs(choice.options);
    const Capability reads_keys =
        inputs.use_queries && inputs.use_keys
            ? Capability(true)
            : make_unsupported(kind.capabilities.shares_query_key ? "queries are used as keys"
                                                                  : "it does not read queries and keys");
    const Capability& groups = reads_keys ? kind.capabilities.grouped_heads : reads_keys;
    if (options.key_heads() != options.heads && !groups)
      problems.push_back({"kv_heads", describe_unsupported(kind, "support for fewer heads of keys", groups)});
    const Capability reads_queries =
        inputs.use_queries ? Capability(true) : make_unsupported("it does not read queries");
    const Capability& norms = reads_queries ? kind.capabilities.normalized_heads : reads_queries;
    if (options.qk_norm && !norms)
      problems.push_back(
          {"qk_norm", describe_unsupported(kind, "support for norms of queries and keys", norms)});
  }
  const auto has_norms = [](const AttentionLayerChoice& choice) {
    return find_attention_kind(choice.kind).normalizes_heads(choice.options);
  };
  if (options.qk_norm && std::all_of(options.attention.begin(), options.attention.end(), has_norms))
    problems.push_back({"qk_norm", "the attention has norms of queries and keys of its own: expected false"});
}

void check_residual(const EncoderOptions& options, Problems& problems) {
  if (options.norm.offset && options.norm.kind != NormKind::rms && !options.qk_norm)
    problems.push_back({"norm_offset", "only RMS norms have an offset: expected false"});
  if (options.parallel_residual && !options.pre_norm)
    problems.push_back({"norm", "parallel branches require pre-norm: expected \"pre\""});
  if (options.parallel_residual && options.reversible)
    problems.push_back({"parallel_residual", "the branches of reversible layers alternate: expected false"});
  if (options.reversible && options.feedforward == 0)
    problems.push_back({"feedforward", "the branches of reversible layers alternate: expected at least 1"});
  if (options.parallel_residual && !options.cross_attention.empty())
    problems.push_back(
        {"parallel_residual", "layers with cross-attention have no such form: expected false"});
}

}  // namespace

RotaryOptions EncoderOptions::make_rotary_options(int64_t dim) const {
  const auto features = static_cast<int64_t>(rotary_share * static_cast<double>(dim));
  return {.base = rotary_base, .features = rotary_share < 1 ? features : 0, .scaling = rotary_scaling};
}

std::span<const ResidualBranch> list_branches(bool has_cross_attention, bool has_feedforward) {
  static constexpr ResidualBranch kBranches[] = {ResidualBranch::attention, ResidualBranch::cross_attention,
                                                 ResidualBranch::feedforward};
  static constexpr ResidualBranch kOwnBranches[] = {kBranches[0], kBranches[2]};
  const std::span<const ResidualBranch> all = has_cross_attention
                                                  ? std::span<const ResidualBranch>(kBranches)
                                                  : std::span<const ResidualBranch>(kOwnBranches);
  return has_feedforward ? all : all.first(all.size() - 1);
}

std::vector<OptionProblem> find_option_problems(const EncoderOptions& options) {
  std::vector<OptionProblem> problems;
  const auto kinds = static_cast<int64_t>(options.attention.size());
  if (kinds == 0 || kinds > options.layers)
    problems.push_back({"attention", concat_text("expected a kind, or a list of 1 to ", options.layers,
                                                 " kinds that repeats over the layers, got ", kinds)});
  check_rotary(options, problems);
  check_heads(options, problems);
  check_residual(options, problems);
  for (const AttentionLayerChoice& choice : options.cross_attention)
    if (const AttentionKind& kind = find_attention_kind(choice.kind); !kind.capabilities.unequal_lengths)
      problems.push_back({"cross_attention", describe_unsupported(kind, "form with keys of another sequence",
                                                                  kind.capabilities.unequal_lengths)});
  if (!options.reversible) return problems;
  if (!options.pre_norm) problems.push_back({"norm", "reversible layers require pre-norm: expected \"pre\""});
  if (options.recompute)
    problems.push_back({"recompute", "reversible layers already recompute activations: expected false"});
  if (const std::string text = describe_unsupported(options.attention, "support for reversible layers",
                                                    &AttentionCapabilities::reversible);
      !text.empty())
    problems.push_back({"reversible", text});
  return problems;
}

MultiHeadAttention::MultiHeadAttention(const EncoderOptions& options, int64_t layer,
                                       const Attention* shared_parameter_source)
    : MultiHeadAttention(options, layer, shared_parameter_source,
                         get_head_sizes(options.attention, layer, options.head_sizes())) {}

MultiHeadAttention::MultiHeadAttention(const EncoderOptions& options, int64_t layer,
                                       const Attention* shared_parameter_source, const HeadSizes& sizes)
    : query_projection(options.width(), sizes.query_heads * sizes.dim,
                       make_projection_options(options, layer)),
      key_projection(options.width(), sizes.key_heads * sizes.dim, make_projection_options(options, layer)),
      value_projection(options.width(), sizes.value_heads * sizes.value_dim,
                       make_projection_options(options, layer)),
      out_projection(sizes.result_width(), options.width(), make_projection_options(options, layer, true)),
      sizes_(sizes),
      rotary_options_(options.make_rotary_options(sizes.dim)) {
  const AttentionLayerChoice& choice = find_layer_choice(options.attention, layer);
  const AttentionKind& kind = find_attention_kind(choice.kind);
  inputs_ = kind.get_used_inputs(choice.options);
  accepts_bfloat16_ = static_cast<bool>(kind.capabilities.bfloat16);
  repeats_keys_ = !kind.capabilities.reads_grouped_heads;
  attention_ = make_attention(options.attention, layer,
                              {.heads = sizes.result_heads(),
                               .dim = sizes.dim,
                               .value_width = sizes.value_dim,
                               .key_heads = sizes.key_heads,
                               .width = options.width(),
                               .max_length = options.max_length,
                               .dropout = options.attention_dropout,
                               .rotary = options.rotary,
                               .rotation = rotary_options_,
                               .causal = options.causal,
                               .layer = layer,
                               .layers = options.layers,
                               .shared_parameter_source = shared_parameter_source,
                               .projections = {&query_projection, &key_projection, &value_projection}});
  rotates_ = options.rotary && !attention_->applies_rotary_positions();
  const auto add_projection = [&](const char* name, Linear& projection) {
    add_child(name, projection);
    projections_.push_back(&projection);
  };
  if (inputs_.use_queries) add_projection("query_projection", query_projection);
  if (inputs_.use_keys) add_projection("key_projection", key_projection);
  add_projection("value_projection", value_projection);
  for (Linear* projection : projections_) projection->takes_adapter = true;
  out_projection.takes_adapter = true;
  std::vector<Tensor*> weights, biases;
  for (Linear* projection : projections_) {
    weights.push_back(&projection->weight);
    if (projection->bias.defined()) biases.push_back(&projection->bias);
  }
  keep_adjacent(weights);
  if (!biases.empty()) keep_adjacent(biases);
  const bool has_norms = !kind.normalizes_heads(choice.options);
  query_norm = make_head_norm(options, sizes.dim, has_norms && inputs_.use_queries);
  key_norm = make_head_norm(options, sizes.dim, has_norms && inputs_.use_keys);
  if (query_norm) add_child("query_norm", *query_norm);
  if (key_norm) add_child("key_norm", *key_norm);
  conv_ = make_conv(kind.get_conv(choice.options), projections_, options.causal);
  if (conv_) add_child("conv", *conv_);
  add_child("out_projection", out_projection);
  add_child("inner_attention", *attention_);
}

// Implements the operations that run_attention() calls. The operations are recorded on the tape, for
// training.
struct MultiHeadAttention::TapeExecutor {
  const MultiHeadAttention& a;
  const AttentionMask& mask;
  const ForwardContext& context;
  const std::string& name;
  Tensor source;     // input of the key and value projections: the segment memory, followed by x
  Shape shape;       // shape of the layer input x, (batch, length, width)
  DType head_dtype;  // dtype of queries, keys and values
  DType result_dtype;
  Tensor* attended;         // receives the input of the output projection, or null
  const LayerState* state;  // ForwardContext::states of this layer, or null

  ProjectedHeads project(const Tensor& x) const {
    return a.project(x, source, mask, context, name, head_dtype, state);
  }
  Tensor normalize_queries(const Tensor& x) const { return a.query_norm ? a.query_norm->forward(x) : x; }
  Tensor normalize_keys(const Tensor& x) const { return a.key_norm ? a.key_norm->forward(x) : x; }
  Tensor rotate(const Tensor& x) const {
    RotaryOptions options = a.rotary_options_;
    if (state) options.first_position = state->position;
    return a.rotates_ ? rotary_embedding(x, options) : x;
  }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Tensor queries = repeat_interleave(q, 2, a.count_query_copies()),
                 keys = repeat_interleave(k, 2, a.count_key_copies()),
                 values = repeat_interleave(v, 2, a.count_value_copies());
    const Tensor attention_result =
        state ? a.attention_->read_tokens(source, queries, keys, values, *state, context, name)
              : a.attention_->forward_with_input(source, queries, keys, values, mask, context, name);
    const HeadSizes& sizes = a.sizes_;
    check_attention_result(attention_result, {shape[0], shape[1], sizes.result_heads(), sizes.value_dim},
                           v.dtype(), name.c_str());
    return reshape(attention_result, {shape[0], shape[1], sizes.result_width()});
  }
  Tensor output(const Tensor& x) const {
    if (attended) *attended = x;
    return a.out_projection.forward(convert_to_operand_dtype(x), Activation::none, {}, result_dtype,
                                    {&context, context.first_example * shape[1]});
  }
};

ProjectedHeads MultiHeadAttention::split_heads(const Tensor& projected, size_t first, size_t last) const {
  const size_t key = inputs_.use_queries ? 1 : 0, value = projections_.size() - 1;
  const int dim = projected.rank() - 1;
  std::vector<int64_t> widths;
  for (size_t i = first; i < last; ++i) widths.push_back(projections_[i]->weight.size(0));
  const bool are_equal =
      sizes_.dim == sizes_.value_dim &&
      std::all_of(widths.begin(), widths.end(), [&](int64_t w) { return w == widths.front(); });
  std::vector<Tensor> parts;
  if (are_equal) {
    Shape shape = projected.shape();
    shape[dim] = static_cast<int64_t>(widths.size());
    shape.append(widths.front() / sizes_.dim);
    shape.append(sizes_.dim);
    parts = unbind(reshape(projected, shape), dim);
  } else {
    for (const Tensor& part : split(projected, dim, widths)) {
      const size_t i = first + parts.size();
      parts.push_back(unflatten(part, dim, i < value ? sizes_.dim : sizes_.value_dim));
    }
  }
  ProjectedHeads heads;
  for (size_t i = first; i < last; ++i)
    (i < key ? heads.query : i < value ? heads.key : heads.value) = parts[i - first];
  return heads;
}

Tensor MultiHeadAttention::project_jointly(const Tensor& x, size_t first, size_t last, DType dtype,
                                           const ForwardContext* context) const {
  return forward_jointly({projections_.begin() + static_cast<std::ptrdiff_t>(first),
                          projections_.begin() + static_cast<std::ptrdiff_t>(last)},
                         x, dtype, {context, context ? context->first_example * x.size(1) : 0});
}

ProjectedHeads MultiHeadAttention::project_source(const Tensor& source) const {
  const Tensor y = project_jointly(convert_to_operand_dtype(source), 1, projections_.size(), source.dtype());
  return split_heads(y, 1, projections_.size());
}

ProjectedHeads MultiHeadAttention::project(const Tensor& x, const Tensor& source, const AttentionMask& mask,
                                           const ForwardContext& context, const std::string& name,
                                           DType dtype, const LayerState* state) const {
  const auto run = [&](size_t first, size_t last, const Tensor& input) {
    Tensor y = project_jointly(input, first, last, dtype, &context);
    if (conv_ && state)
      y = conv_->read_tokens(y, state->conv_history);
    else if (conv_)
      y = conv_->forward(y, mask.causal, mask.key_lengths, context.memory, get_conv_memory_name(name));
    return split_heads(y, first, last);
  };
  if (!inputs_.use_queries || source.id() == x.id()) return run(0, projections_.size(), source);
  ProjectedHeads heads = run(1, projections_.size(), source);
  heads.query = run(0, 1, x).query;
  return heads;
}

Tensor MultiHeadAttention::forward(const Tensor& x, const Tensor& x_operand, const AttentionMask& mask,
                                   const ForwardContext& context, const std::string& name, DType result_dtype,
                                   const Tensor& source) const {
  throw_if_interrupted();
  const Tensor operand = x_operand.defined() ? x_operand : convert_to_operand_dtype(x);
  const DType head_dtype = accepts_bfloat16_ ? operand.dtype() : x.dtype();
  const Tensor rows = source.defined() ? source
                      : context.memory ? attention_->prepend_memory(x, context, name)
                                       : x;
  const Tensor read = rows.id() == x.id() ? operand : convert_to_operand_dtype(rows);
  const bool is_recorded = context.attention_records != nullptr && !source.defined();
  const LayerState* const state = context.states && !source.defined() ? &context.states->at(name) : nullptr;
  AttentionRecord record{x, operand, {}, {}};
  record.result = run_attention(TapeExecutor{*this, mask, context, name, read, x.shape(), head_dtype,
                                             result_dtype, is_recorded ? &record.heads : nullptr, state},
                                operand);
  if (is_recorded) context.attention_records->push_back(record);
  return record.result;
}

EncoderLayer::EncoderLayer(const EncoderOptions& options, int64_t layer_index,
                           const Attention* shared_parameter_source)
    : attention(options, layer_index, shared_parameter_source),
      feedforward(options.width(), std::max<int64_t>(options.feedforward, 1),
                  {.activation = options.activation,
                   .gated = options.gated_feedforward,
                   .has_biases = options.feedforward_biases}),
      norm1(options.width(), options.norm),
      norm2(options.width(), options.norm),
      form_(choose_residual_form(options)),
      has_feedforward_(options.feedforward > 0),
      dropout_(options.dropout),
      feedforward_chunks_(options.feedforward_chunks),
      name_(options.name + "layers." + std::to_string(layer_index)) {
  add_child("attention", attention);
  if (!options.cross_attention.empty()) {
    cross_attention = std::make_unique<MultiHeadAttention>(make_cross_options(options), layer_index);
    cross_norm = std::make_unique<Norm>(options.width(), options.norm);
    add_child("cross_attention", *cross_attention);
    add_child("cross_norm", *cross_norm);
  }
  if (has_feedforward_) add_child("", feedforward);
  add_child("norm1", norm1);
  if (has_feedforward_) add_child("norm2", norm2);
}

// Executor of run_layer() that records the ops on the tape. `first_row` is the index of the first input row
// among the batch * length rows of the whole batch. The dropout masks depend on `first_row`. For the
// feed-forward branch, the rows are divided into `chunks` chunks.
struct EncoderLayer::TapeExecutor {
  const EncoderLayer& layer;
  const AttentionMask& mask;
  const ForwardContext& context;
  const EncodedSource& source;
  int64_t first_row = 0;
  int64_t chunks = 1;

  DropoutMask dropout_mask(const char* name) const {
    return context.make_dropout_mask(layer.dropout_, layer.name_ + name);
  }
  DropoutMask hidden_mask(int64_t row) const {
    return dropout_mask(".hidden").at_offset(row * layer.feedforward.linear1.weight.size(0));
  }
  DropoutMask output_mask(ResidualBranch branch, int64_t width) const {
    const char* const name = branch == ResidualBranch::attention         ? ".attention"
                             : branch == ResidualBranch::cross_attention ? ".cross_attention"
                                                                         : ".out";
    return dropout_mask(name).at_offset(first_row * width);
  }

  LayerNormResult norm(ResidualBranch branch, const Tensor& x) const {
    return layer.norm(branch).forward_with_operand(x);
  }
  Tensor dropout(ResidualBranch branch, const Tensor& x) const {
    return tapeformer::dropout(x, output_mask(branch, x.size(-1)));
  }
  Tensor sum(const Tensor& residual, const Tensor& branch_result) const {
    return add(residual, branch_result);
  }
  Tensor sum_beside(const Tensor&, const Tensor& total, const Tensor& branch_result) const {
    return add(total, branch_result);
  }
  LayerNormResult normalize_sum(ResidualBranch branch, const Tensor& residual,
                                const Tensor& branch_result) const {
    return layer.norm(branch).forward_with_operand(residual, branch_result,
                                                   output_mask(branch, residual.size(-1)));
  }
  Tensor run_branch(ResidualBranch branch, const Tensor& x, const Tensor& x_operand) const {
    const Tensor operand = x_operand.defined() ? x_operand : convert_to_operand_dtype(x);
    // In post-norm layers, the result of the branch can be bfloat16. In other layers, the result is added to
    // x and must have the dtype of x.
    const DType result_dtype = layer.form_ == ResidualForm::post_norm ? get_operand_dtype(x) : x.dtype();
    if (branch == ResidualBranch::attention)
      return layer.attention.forward(x, operand, mask, context, layer.name_, result_dtype);
    if (branch == ResidualBranch::cross_attention)
      return layer.cross_attention->forward(x, operand, {.causal = false, .key_lengths = source.lengths},
                                            context, layer.name_ + ".cross_attention", result_dtype,
                                            source.states);
    return chunks > 1 ? chunked_feedforward(operand, result_dtype)
                      : layer.feedforward.forward(operand, hidden_mask(first_row), result_dtype,
                                                  {&context, first_row});
  }
  Tensor chunked_feedforward(const Tensor& x, DType result_dtype) const;
};

// Computes the feed-forward branch in chunks. The lambdas do not capture `this`, because backward() calls
// them after the executor is destroyed.
Tensor EncoderLayer::TapeExecutor::chunked_feedforward(const Tensor& x, DType result_dtype) const {
  const FeedForward& block = layer.feedforward;
  const auto mask_from = [&block, mask = hidden_mask(first_row)](int64_t row) {
    return mask.at_offset(row * block.linear1.weight.size(0));
  };
  const auto forward = [&block, mask_from, result_dtype, kept = context, start = first_row](
                           const Tensor& rows, int64_t first) {
    return block.forward(rows, mask_from(first), result_dtype, {&kept, start + first});
  };
  const auto gradient = [&block, mask_from, kept = context, start = first_row](
                            const Tensor& rows, int64_t first, const Tensor& g) {
    block.run_backward(rows, mask_from(first), g, {&kept, start + first});
  };
  const Tensor rows = reshape(x, {x.size(0) * x.size(1), x.size(2)});
  return reshape(compute_in_chunks(forward, rows, chunks, block.leaves(), gradient), x.shape());
}

Tensor EncoderLayer::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                             const EncodedSource& source) const {
  HiddenStates states{x};
  apply(states, mask, context, source);
  return states.x1;
}

void EncoderLayer::apply(HiddenStates& states, const AttentionMask& mask, const ForwardContext& context,
                         const EncodedSource& source) const {
  check(source.states.defined() == (cross_attention != nullptr), name_.c_str(),
        "cross-attention needs a source, and other layers take none");
  const int64_t first_row = context.first_example * states.x1.size(1);
  run_layer(form_, branches(), TapeExecutor{*this, mask, context, source, first_row, feedforward_chunks_},
            states);
}

Tensor EncoderLayer::run_branch(ResidualBranch branch, const Tensor& x, const AttentionMask& mask,
                                const ForwardContext& context, const EncodedSource& source,
                                int64_t first_row) const {
  return run_residual_branch(TapeExecutor{*this, mask, context, source, first_row}, branch, x);
}

}  // namespace tapeformer
