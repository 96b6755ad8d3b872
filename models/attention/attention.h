// Attention kinds. An attention kind computes attention from projected queries, keys and values. Each kind is
// registered under a name, with its options, its capabilities and its cost. Models use attention kinds
// through this interface only.
#pragma once

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/options/options.h"
#include "models/attention/state.h"
#include "models/layers/segment_memory.h"
#include "ops/rotary.h"
#include "ops/short_conv.h"

namespace tapeformer {

// A flag that states whether an attention kind supports a feature, and the reason if it does not.
class Capability {
 public:
  // Sets the flag. If `supported` is false, the reason is that the kind does not implement the feature.
  Capability(bool supported = false)  // NOLINT(google-explicit-constructor): allows `.causal = true`
      : supported_(supported), reason_(supported ? "" : "the kind does not implement it") {}

  explicit operator bool() const { return supported_; }
  // Returns the reason why the capability is unsupported, for example "queries are used as keys". Returns ""
  // if the capability is supported.
  const std::string& reason() const { return reason_; }

 private:
  friend Capability make_unsupported(std::string reason);

  bool supported_;
  std::string reason_;
};

// Returns an unsupported capability. reason() of the capability returns `reason`, which error messages print.
inline Capability make_unsupported(std::string reason) {
  Capability capability;
  capability.reason_ = std::move(reason);
  return capability;
}

struct AttentionCapabilities {
  // Supported forms of attention.
  Capability causal = false;           // a query attends only to keys at its position and before
  Capability length_masks = false;     // supports AttentionMask::key_lengths
  Capability unequal_lengths = false;  // non-causal attention with queries and keys of different lengths
  Capability recurrent = false;        // implements make_state() and step()
  Capability step_graphs = true;       // a CUDA graph of step() can be replayed for each token
  // Supported features of training.
  Capability weight_dropout = false;   // dropout of attention weights in training
  Capability bfloat16 = false;         // bfloat16 inputs; if unsupported, models pass float32 inputs
  Capability grouped_heads = true;     // fewer heads of keys and values than heads of queries
  Capability normalized_heads = true;  // norms of queries and keys, which the encoder layer computes
  Capability reversible = true;        // tolerates rounding errors of recomputed inputs in reversible layers
  // Properties of the kind.
  bool has_constant_size_state = false;  // the size of the recurrent state does not depend on the token count
  bool shares_query_key = false;         // queries are used as keys: models have no key projection
  bool has_random_evaluation = false;    // results of evaluation depend on ForwardContext::seed
  bool can_round_step_results = false;   // step() can write a bfloat16 result for float32 inputs
  bool reads_layer_input = false;        // implements forward_with_input()
  // forward() and step() take keys and values with fewer heads than the queries. If false, the encoder layer
  // repeats the heads.
  bool reads_grouped_heads = false;
  bool approximates_softmax = true;   // evaluations may use another kind with this property instead
  bool has_projection_biases = true;  // the projections of the layer have biases
};

// The keys that each query can attend to.
struct AttentionMask {
  bool causal = true;  // masks the keys after the position of the query
  // Numbers of valid keys, (batch,) int64. In sequence b, keys at positions key_lengths[b] and later are
  // masked. If undefined, no key is masked.
  Tensor key_lengths;
};

class Linear;      // models/layers/layers.h
struct KeyWindow;  // ops/kernels/key_window.h

// Base class of attention kinds. Each layer has one Attention object. Derived classes register their
// parameters and state like other modules. In an encoder layer, the names of these tensors have the prefix
// "attention.inner_attention.".
class Attention : public Module {
 public:
  // Returns the attention of q (batch, q_length, heads, dim) to k (batch, k_length, heads, dim) and v (batch,
  // k_length, heads, value_dim). k and v can have fewer heads if the kind has reads_grouped_heads. The result
  // is (batch, q_length, heads, value_dim). If there is a segment memory, k and v begin with the keys and
  // values of the memory. All inputs have the same dtype: float32, float64 or, if the kind supports it,
  // bfloat16. The inputs can have arbitrary strides.
  //
  // `name` is the full name of the layer. Implementations use `name` as the prefix of the names of random
  // streams and of stored decisions. forward() stores decisions, such as LSH buckets, in context.decisions,
  // so that a replay of the forward pass in backward() makes the same decisions.
  virtual Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                         const ForwardContext& context, const std::string& name) const = 0;

  // Like forward(), for kinds with reads_layer_input, which also read the input x (batch, length, width) of
  // the layer. x has the dtype of the operands of matrix products, get_operand_dtype(). The default
  // implementation ignores x.
  virtual Tensor forward_with_input(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionMask& mask, const ForwardContext& context,
                                    const std::string& name) const;

  // Returns whether forward() and step() apply rotary positions themselves. If the result is false, the
  // encoder layer rotates queries and keys before it calls forward() or step().
  virtual bool applies_rotary_positions() const { return false; }

  // Returns an empty state. Throws std::invalid_argument if the kind has no recurrent form.
  virtual std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const;
  // Appends one token to the state and writes the causal attention of the token to `out`. q and k are
  // (batch, heads, dim); v and out are (batch, heads, value_dim). The last dimension of q, k and v is
  // contiguous, and `out` is contiguous. All tensors have the dtype of the state. If the kind has
  // can_round_step_results, `out` can also be bfloat16 for float32 inputs. Allocates no tensors. Throws
  // std::invalid_argument if the kind has no recurrent form.
  virtual void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
                    const Tensor& out) const;

  // Appends several tokens to the state, whose attention is an object of make_state(), and returns what
  // step() returns for each of them. The arguments are those of forward_with_input(), and the tape records
  // nothing. The default implementation calls observe_input() and step() for each token.
  virtual Tensor read_tokens(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                             const LayerState& state, const ForwardContext& context,
                             const std::string& name) const;

  // Returns the keys k (sources, length, heads, dim) and the values v of another sequence, of which
  // `key_lengths` (sources,) are valid, for queries that read them again and again. The default
  // implementation keeps them and calls forward() without a causal mask, so it needs unequal_lengths. The
  // result must not outlive this object.
  virtual std::unique_ptr<SourceState> read_source(const Tensor& k, const Tensor& v,
                                                   const Tensor& key_lengths) const;

  // Returns the input of the key and value projections for the inputs x (batch, length, width) of a layer.
  // The default implementation stores x in the segment memory context.memory, which may be null, and returns
  // the rows that the memory has from earlier segments, followed by x.
  virtual Tensor prepend_memory(const Tensor& x, const ForwardContext& context,
                                const std::string& name) const;
  // Receives the input x (batch, width) of the layer for the token of the next call of step(). The default
  // implementation does nothing.
  virtual void observe_input(const Tensor& x, AttentionState& state) const;
};

// The projections of a layer from its inputs to queries, keys and values.
struct AttentionProjections {
  const Linear *query = nullptr, *key = nullptr, *value = nullptr;
};

// Numbers of heads of a layer, and their widths. Each number of heads divides the number of heads of the
// results: head h of the results reads head h / (results / n) of n heads.
struct HeadSizes {
  int64_t query_heads = 1, key_heads = 1, value_heads = 1;
  int64_t dim = 1, value_dim = 1;  // width of a query and of a key, and width of a value

  int64_t result_heads() const { return std::max(query_heads, value_heads); }
  int64_t result_width() const { return result_heads() * value_dim; }
};

// Properties of a layer that AttentionKind::make takes as an argument.
struct AttentionSetup {
  int64_t heads = 1, dim = 1;     // number of heads of the results, and width of a query and of a key
  int64_t value_width = 0;        // width of a value; 0: dim
  int64_t key_heads = 0;          // number of heads of keys before they are repeated; 0: heads
  int64_t width = 0;              // width of the inputs of the layer; 0: heads * dim
  int64_t max_length = 0;         // maximum number of tokens of a sequence; 0: unlimited
  double dropout = 0;             // probability of dropping an attention weight
  bool rotary = false;            // whether the model has rotary positions (ops/rotary.h)
  RotaryOptions rotation = {};    // of the rotary positions
  bool causal = true;             // whether all masks are causal
  int64_t layer = 0, layers = 1;  // index of the layer, and number of layers
  // The attention layer of the first layer of the model with the same kind and options. Null for that first
  // layer. A layer can share the parameters of the first layer by calling Module::add_alias().
  const Attention* shared_parameter_source = nullptr;
  AttentionProjections projections = {};  // null pointers if there is no layer around the attention

  int64_t input_width() const { return width > 0 ? width : heads * dim; }
  int64_t value_dim() const { return value_width > 0 ? value_width : dim; }
};

// Sizes of one head of causal self-attention, the argument of AttentionKind::count_multiply_adds.
struct AttentionSize {
  int64_t length;  // number of tokens
  int64_t dim;     // width of a query, of a key and of a value
};

// Flags that state whether an attention kind reads queries and keys. Every attention kind reads values. A
// layer has no projection for an input that the kind does not read. If the queries are unused, forward()
// receives the values as queries. If the keys are unused, forward() receives the queries as keys.
struct UsedAttentionInputs {
  bool use_queries = true, use_keys = true;
};

// A convolution over time, and an activation, which the layer applies to projected queries, keys and values.
struct ProjectionConv {
  int64_t kernel = 0;  // 0: no convolution
  GateActivation activation = GateActivation::none;
  bool starts_as_identity = false;  // the initial convolution copies its inputs
  bool has_bias = false;            // before the activation

  bool is_active() const { return kernel > 0 || activation != GateActivation::none; }
};

// A named set of options. A benchmark chart shows one curve for each variant.
struct AttentionVariant {
  std::string name;
  std::vector<std::pair<std::string, OptionValue>> options;
};

struct AttentionKind {
  std::string name;
  std::string help;  // a one-line description
  AttentionCapabilities capabilities;
  // The options of the kind. In a config, users set these options in the table [attention].
  std::vector<OptionSpec> options;
  // Returns a new attention layer with these options. If the kind does not support weight_dropout,
  // setup.dropout must be 0. Throws OptionError for invalid options.
  std::function<std::unique_ptr<Attention>(const OptionValues& options, const AttentionSetup& setup)> make;
  // Returns which inputs the kind reads with these options. Optional; see get_used_inputs() for the default.
  std::function<UsedAttentionInputs(const OptionValues& options)> select_inputs = nullptr;
  // Returns the sizes of the heads in a model whose layers have the sizes `model`. Optional: by default,
  // these sizes. Throws OptionError for invalid options.
  std::function<HeadSizes(const OptionValues& options, const HeadSizes& model)> select_sizes = nullptr;
  // Returns whether the kind normalises queries and keys itself, so that the layer has no norms for them.
  // Optional: by default, it does not.
  std::function<bool(const OptionValues& options)> has_own_norms = nullptr;
  // Returns the options with the values that a preset decides. Optional: by default, there are none.
  std::function<OptionValues(const OptionValues& options, const HeadSizes& model)> resolve_options = nullptr;
  // Returns the convolution of the projections. Optional: by default, the options "conv" and
  // "conv_activation", which register_attention_kind() adds to kinds without an option "conv".
  std::function<ProjectionConv(const OptionValues& options)> select_conv = nullptr;
  // Throws OptionError if the options are invalid for sequences of `length` tokens. Optional.
  std::function<void(const OptionValues& options, int64_t length)> check_length = nullptr;
  // Returns the size of the segment memory that the kind uses with these options. Optional: if
  // `compute_segment_memory_size` is empty, the kind has no segment memory.
  std::function<SegmentMemorySize(const OptionValues& options)> compute_segment_memory_size = nullptr;
  // Returns the number of multiply-adds in a causal forward pass of one head over one sequence. The number
  // includes the multiply-adds of the scores, of the weighted sums and of the state updates. Optional.
  // Benchmarks use the number to report floating-point operations per second.
  std::function<double(const OptionValues& options, const AttentionSize& size)> count_multiply_adds = nullptr;
  // Values that replace the defaults of options in tests with sequences of about ten tokens.
  std::vector<std::pair<std::string, OptionValue>> test_options = {};
  // Sets of options, one for each curve in benchmark charts. If the list is empty, charts show one curve with
  // the default options.
  std::vector<AttentionVariant> variants = {};

  // Returns which inputs the kind reads with these options. If `select_inputs` is empty, the inputs are
  // queries and keys, or only queries if the kind has shares_query_key.
  UsedAttentionInputs get_used_inputs(const OptionValues& values) const {
    return select_inputs ? select_inputs(values) : UsedAttentionInputs{true, !capabilities.shares_query_key};
  }
  HeadSizes get_sizes(const OptionValues& values, const HeadSizes& model) const {
    return select_sizes ? select_sizes(values, model) : model;
  }
  bool normalizes_heads(const OptionValues& values) const { return has_own_norms && has_own_norms(values); }
  ProjectionConv get_conv(const OptionValues& values) const;
  SegmentMemorySize get_segment_memory_size(const OptionValues& values) const {
    return compute_segment_memory_size ? compute_segment_memory_size(values) : SegmentMemorySize();
  }
  OptionValues default_options() const { return OptionValues(options); }
  // Returns the defaults with some options replaced. Throws OptionError for an unknown option or a wrong
  // type.
  OptionValues make_options(const std::vector<std::pair<std::string, OptionValue>>& replaced) const;
};

// Adds a kind to the registry. Throws std::invalid_argument if the name is empty or already registered, if
// `make` is empty, or if an option has no name, a duplicate name, an invalid default or a `used_if` that
// names no option. Not thread-safe: programs register their kinds before they make models or read configs.
void register_attention_kind(AttentionKind kind);

// Returns every kind in the order of registration, the built-in kinds first. References to kinds stay valid.
const std::deque<AttentionKind>& list_attention_kinds();
// Returns the kind with this name. Throws ConfigError for an unknown name; the message suggests the nearest
// known name.
const AttentionKind& find_attention_kind(const std::string& name);
// Returns a new attention layer of the kind with this name. Throws OptionError for the option
// "attention_dropout" if `setup.dropout` is not 0 but the kind does not support weight_dropout. Throws
// OptionError for the option "attention_options.NAME" if the kind rejects the option NAME.
std::unique_ptr<Attention> make_attention(const std::string& name, const OptionValues& options,
                                          const AttentionSetup& setup = {});
// Throws OptionError if the options of the kind are invalid for sequences of `length` tokens. The option name
// in the error is "attention_options.NAME".
void check_attention_length(const std::string& name, const OptionValues& options, int64_t length);

// Returns an error message about an unsupported capability: `attention kind "NAME" has no WHAT: REASON`,
// where WHAT is `what` and REASON is missing.reason().
std::string describe_unsupported(const AttentionKind& kind, const std::string& what,
                                 const Capability& missing);

// Returns a softmax attention layer in which each query attends only to the keys in its window. `dropout` is
// the probability of dropping an attention weight.
std::unique_ptr<Attention> make_softmax_attention(const KeyWindow& window, double dropout);

// Return the built-in attention kinds. make_pattern_attention_kinds() returns the kinds of softmax attention
// to the keys of a pattern.
AttentionKind make_compressive_attention_kind();
AttentionKind make_etc_attention_kind();
AttentionKind make_gated_delta_attention_kind();
AttentionKind make_gated_linear_attention_kind();
AttentionKind make_isab_attention_kind();
AttentionKind make_linear_attention_kind();
AttentionKind make_linformer_attention_kind();
AttentionKind make_lsh_attention_kind();
AttentionKind make_memory_compressed_attention_kind();
std::vector<AttentionKind> make_pattern_attention_kinds();
AttentionKind make_performer_attention_kind();
AttentionKind make_routing_attention_kind();
AttentionKind make_shared_softmax_attention_kind();
AttentionKind make_sinkhorn_attention_kind();
AttentionKind make_softmax_attention_kind();
AttentionKind make_synthesizer_attention_kind();
AttentionKind make_transformer_xl_attention_kind();
AttentionKind make_window_linear_attention_kind();

}  // namespace tapeformer
