#include "models/encoder/encoder_layer.h"

#include "autograd/chunked.h"
#include "models/layers/loss_terms.h"
#include "ops/elementwise.h"
#include "ops/linear.h"
#include "ops/losses.h"
#include "ops/rotary.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// Throws ShapeError unless `attended`, the result of an attention kind, has the expected shape and dtype.
void check_attended(const Tensor& attended, const Shape& expected, DType dtype, const char* name) {
  check(attended.defined(), name, "the attention kind returned an undefined tensor");
  check(attended.shape() == expected && attended.dtype() == dtype, name, "the attention kind must return ",
        expected, " ", name_of(dtype), ", not ", attended.shape(), " ", name_of(attended.dtype()));
}

}  // namespace

std::vector<OptionProblem> option_problems(const EncoderOptions& options) {
  std::vector<OptionProblem> problems;
  const auto kinds = static_cast<int64_t>(options.attention.size());
  if (kinds == 0 || kinds > options.layers)
    problems.push_back({"attention", concat_text("expected a kind, or a list of 1 to ", options.layers,
                                                 " kinds that repeats over the layers, got ", kinds)});
  if (options.rotary && options.head_dim % 2 != 0)
    problems.push_back({"head_dim", concat_text("rotary positions rotate pairs of features: expected an even "
                                                "number, got ",
                                                options.head_dim)});
  if (!options.reversible) return problems;
  if (!options.pre_norm) problems.push_back({"pre_norm", "reversible layers require pre-norm"});
  if (options.recompute)
    problems.push_back({"recompute", "reversible layers already recompute activations: expected false"});
  if (const std::string text = unsupported_text(options.attention, "support for reversible layers",
                                                &AttentionCapabilities::reversible);
      !text.empty())
    problems.push_back({"reversible", text});
  return problems;
}

MultiHeadAttention::MultiHeadAttention(const EncoderOptions& options, int64_t layer, const Attention* first)
    : query_projection(options.width(), options.width()),
      key_projection(options.width(), options.width()),
      value_projection(options.width(), options.width()),
      out_projection(options.width(), options.width()),
      heads_(options.heads),
      head_dim_(options.head_dim),
      is_rotary_(options.rotary) {
  const AttentionChoice& choice = choice_of_layer(options.attention, layer);
  const AttentionKind& kind = attention_kind(choice.kind);
  inputs_ = kind.inputs_of(choice.options);
  takes_bfloat16_ = static_cast<bool>(kind.capabilities.bfloat16);
  attention_ = make_attention(options.attention, layer,
                              {.heads = heads_,
                               .dim = head_dim_,
                               .max_length = options.max_length,
                               .dropout = options.attention_dropout,
                               .first = first});
  if (inputs_.queries) add_child("query_projection", query_projection);
  if (inputs_.keys) add_child("key_projection", key_projection);
  add_child("value_projection", value_projection);
  add_child("out_projection", out_projection);
  add_child("inner_attention", *attention_);
}

// Executor of run_attention() that records the ops on the tape.
struct MultiHeadAttention::TapeExecutor {
  const MultiHeadAttention& a;
  const AttentionMask& mask;
  const ForwardContext& context;
  const std::string& name;
  Tensor source;     // input of the keys and the values: the segment memory and the input of the queries
  Shape shape;       // shape of the input of the queries
  DType head_dtype;  // dtype of queries, keys and values
  DType result;

  AttentionInputs inputs() const { return a.inputs_; }
  Tensor heads(const Linear& projection, const Tensor& x) const {
    return reshape(projection.forward(x, Activation::none, {}, head_dtype),
                   {x.size(0), x.size(1), a.heads_, a.head_dim_});
  }
  Tensor rotated(const Tensor& x) const { return a.is_rotary_ ? rotary(x) : x; }
  Tensor query(const Tensor& x) const { return rotated(heads(a.query_projection, x)); }
  Tensor key(const Tensor&) const { return rotated(heads(a.key_projection, source)); }
  Tensor value(const Tensor&) const { return heads(a.value_projection, source); }
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v) const {
    const Tensor attended = a.attention_->forward(q, k, v, mask, context, name);
    check_attended(attended, {shape[0], shape[1], v.size(2), v.size(3)}, v.dtype(), name.c_str());
    return reshape(attended, shape);
  }
  Tensor output(const Tensor& x) const {
    return a.out_projection.forward(as_operand(x), Activation::none, {}, result);
  }
};

Tensor MultiHeadAttention::with_memory(const Tensor& x, const ForwardContext& context,
                                       const std::string& name) const {
  const Tensor evicted = context.memory->write(name, x);
  if (evicted.defined()) compress_memory(x, evicted, context, name);
  const Tensor memory = context.memory->read(name, x.size(0));
  return memory.defined() ? concat({memory.to(x.dtype()), x}, 1) : x;
}

// Recomputed and reversible layers run with recording off. The loss term is recorded nevertheless, because
// replays do not compute it again.
void MultiHeadAttention::compress_memory(const Tensor& x, const Tensor& evicted,
                                         const ForwardContext& context, const std::string& name) const {
  const RecordingScope scope(context.terms != nullptr);
  const Tensor rows = attention_->compress(evicted);
  context.memory->write_compressed(name, rows);
  if (requires_grad(rows)) context.terms->add(reconstruction_loss(detach(x), evicted, rows));
}

Tensor MultiHeadAttention::reconstruction_loss(const Tensor& x, const Tensor& evicted,
                                               const Tensor& compressed) const {
  const auto heads = [&](const Linear& projection, const Tensor& rows) {
    return reshape(linear(rows, detach(projection.weight), detach(projection.bias)),
                   {rows.size(0), rows.size(1), heads_, head_dim_});
  };
  const Tensor q = heads(query_projection, x);
  const auto attended = [&](const Tensor& rows) {
    return softmax_attention(q, heads(key_projection, rows), heads(value_projection, rows));
  };
  return mse_loss(attended(compressed), attended(evicted));
}

Tensor MultiHeadAttention::forward(const Tensor& x, const AttentionMask& mask, const ForwardContext& context,
                                   const std::string& name, DType result) const {
  const Tensor operand = as_operand(x);
  const DType head_dtype = takes_bfloat16_ ? operand.dtype() : x.dtype();
  const Tensor source = context.memory ? as_operand(with_memory(x, context, name)) : operand;
  return run_attention(TapeExecutor{*this, mask, context, name, source, x.shape(), head_dtype, result},
                       operand);
}

EncoderLayer::EncoderLayer(const EncoderOptions& options, int64_t number, const Attention* first)
    : attention(options, number, first),
      feedforward(options.width(), options.feedforward, options.activation),
      norm1(options.width()),
      norm2(options.width()),
      form_(residual_form(options)),
      dropout_(options.dropout),
      chunks_(options.feedforward_chunks),
      name_("layers." + std::to_string(number)) {
  add_child("attention", attention);
  add_child("linear1", feedforward.linear1);
  add_child("linear2", feedforward.linear2);
  add_child("norm1", norm1);
  add_child("norm2", norm2);
}

// Executor of run_layer() that records the ops on the tape. The input of the feed-forward branch starts at
// row `first_row` of the random streams.
struct EncoderLayer::TapeExecutor {
  const EncoderLayer& layer;
  const AttentionMask& mask;
  const ForwardContext& context;
  int64_t first_row = 0;
  int64_t chunks = 1;

  DropoutMask dropout_mask(const char* name) const {
    return context.dropout(layer.dropout_, layer.name_ + name);
  }
  DropoutMask hidden_mask(int64_t row) const {
    return dropout_mask(".hidden").from(row * layer.feedforward.linear1.weight.size(0));
  }
  DropoutMask output_mask(Branch branch, int64_t width) const {
    return dropout_mask(branch == Branch::attention ? ".attention" : ".out").from(first_row * width);
  }

  Tensor norm(Branch branch, const Tensor& x) const { return layer.norm(branch).forward(x); }
  Tensor dropout(Branch branch, const Tensor& x) const {
    return tapeformer::dropout(x, output_mask(branch, x.size(-1)));
  }
  Tensor sum(const Tensor& residual, const Tensor& change) const { return add(residual, change); }
  Tensor norm_of_sum(Branch branch, const Tensor& residual, const Tensor& change) const {
    return layer.norm(branch).forward(residual, change, output_mask(branch, residual.size(-1)));
  }
  Tensor apply(Branch branch, const Tensor& x) const {
    // norm_of_sum() accepts a bfloat16 output of the branch; the residual sums of other forms do not.
    const DType result = layer.form_ == ResidualForm::post_norm ? operand_dtype(x) : x.dtype();
    if (branch == Branch::attention) return layer.attention.forward(x, mask, context, layer.name_, result);
    return chunks > 1 ? chunked_feedforward(x, result)
                      : layer.feedforward.forward(x, hidden_mask(first_row), result);
  }
  Tensor chunked_feedforward(const Tensor& x, DType result) const;
};

// Computes the feed-forward branch in chunks. The lambdas do not refer to this object, because backward()
// calls them after it is destroyed.
Tensor EncoderLayer::TapeExecutor::chunked_feedforward(const Tensor& x, DType result) const {
  const FeedForward& block = layer.feedforward;
  const auto mask_from = [&block, mask = hidden_mask(first_row)](int64_t row) {
    return mask.from(row * block.linear1.weight.size(0));
  };
  const auto forward = [&block, mask_from, result](const Tensor& rows, int64_t first) {
    return block.forward(rows, mask_from(first), result);
  };
  const auto gradient = [&block, mask_from](const Tensor& rows, int64_t first, const Tensor& g) {
    block.backward_from(rows, mask_from(first), g);
  };
  const Tensor rows = reshape(x, {x.size(0) * x.size(1), x.size(2)});
  return reshape(
      chunked(forward, rows, chunks,
              {block.linear1.weight, block.linear1.bias, block.linear2.weight, block.linear2.bias}, gradient),
      x.shape());
}

Tensor EncoderLayer::forward(const Tensor& x, const AttentionMask& mask,
                             const ForwardContext& context) const {
  LayerState state{x, {}};
  run_layer(form_, TapeExecutor{*this, mask, context, context.first_example * x.size(1), chunks_}, state);
  return state.first;
}

Tensor EncoderLayer::attention_change(const Tensor& x, const AttentionMask& mask,
                                      const ForwardContext& context) const {
  return residual_change(TapeExecutor{*this, mask, context, context.first_example * x.size(1)},
                         Branch::attention, x);
}

Tensor EncoderLayer::feedforward_change(const Tensor& x, int64_t first_row,
                                        const ForwardContext& context) const {
  const AttentionMask no_mask;
  return residual_change(TapeExecutor{*this, no_mask, context, first_row}, Branch::feedforward, x);
}

}  // namespace tapeformer
