#include "models/attention/kinds/softmax.h"

#include <algorithm>

#include "models/attention/kinds/gated/gates.h"
#include "models/attention/score_masks.h"
#include "models/attention/sparse_pattern.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kNoGate = "none";

class SoftmaxState final : public AttentionState {
 public:
  SoftmaxState(const AttentionStateOptions& s, const SparsePattern& pattern)
      : SoftmaxState(s, pattern, std::min(s.capacity, pattern.pattern.max_causal_key_count())) {}
  void reset() override { cache.length = 0; }
  int64_t bytes() const override { return cache.keys.bytes() + cache.values.bytes(); }
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override {
    const KeyValueCache& source = static_cast<const SoftmaxState&>(from).cache;
    cache.length = source.length;
    const int64_t used = std::min({cache.length, source.keys.size(1), cache.keys.size(1)});
    tapeformer::copy_rows(source.keys, cache.keys, rows, used);
    tapeformer::copy_rows(source.values, cache.values, rows, used);
  }

  KeyValueCache cache;
  DecodingProjection gate_projection;
  Tensor gate;  // (batch, heads, value_dim); undefined without a gate

 private:
  SoftmaxState(const AttentionStateOptions& s, const SparsePattern& pattern, int64_t capacity)
      : cache(make_key_value_cache({s.batch, capacity, s.key_heads, s.dim, s.value_dim}, s.operand_dtype,
                                   s.device, pattern.pattern, pattern.key_blocks)) {}
};

// Scaled dot-product attention (Vaswani et al. 2017) to the keys that a pattern selects.
class SoftmaxKind : public Attention {
 public:
  SoftmaxKind(PatternFunction pattern, double dropout) : pattern_(std::move(pattern)), dropout_(dropout) {}
  // Adds the gate sigmoid(projection of the input of the layer) of the results (Qiu et al. 2025, "Gated
  // Attention for Large Language Models").
  void add_gate(const AttentionSetup& setup) {
    gate_ = std::make_unique<Projection>(setup.input_width(), setup.heads * setup.value_dim(), 0, false);
    add_child("output_gate", *gate_);
  }

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    const SparsePattern sparse = pattern_({q.size(1), q.size(2), mask.causal, q.device(), name});
    SoftmaxAttentionOptions options = make_softmax_attention_options(q, k, mask, dropout_, context, name);
    options.pattern = sparse.pattern;
    options.key_blocks = sparse.key_blocks;
    return softmax_attention(q, k, v, options);
  }
  Tensor forward_with_input(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionMask& mask, const ForwardContext& context,
                            const std::string& name) const override {
    return apply_gate(forward(q, k, v, mask, context, name), x);
  }
  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& shape) const override {
    // pattern_() can keep the returned table of key blocks in a cache. The table is requested on the CPU, so
    // that the cached table uses no device memory. The state owns a copy of the table on the device.
    SparsePattern pattern = pattern_({shape.capacity, shape.heads, true, kCpu, shape.name});
    if (pattern.key_blocks.defined()) pattern.key_blocks = pattern.key_blocks.to(shape.device);
    auto state = std::make_unique<SoftmaxState>(shape, pattern);
    if (gate_) {
      state->gate_projection = DecodingProjection(*gate_, shape);
      state->gate = Tensor::empty({shape.batch, shape.heads, shape.value_dim}, shape.dtype, shape.device);
    }
    return state;
  }
  void observe_input(const Tensor& x, AttentionState& attention_state) const override {
    if (!gate_) return;
    const auto& state = static_cast<SoftmaxState&>(attention_state);
    state.gate_projection.forward_into(x, state.gate.view({x.size(0), state.gate.numel() / x.size(0)}));
    sigmoid_into(state.gate, state.gate);
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& state,
            const Tensor& out) const override {
    softmax_attention_step(q, k, v, static_cast<SoftmaxState&>(state).cache, out);
    if (gate_) mul_into(out, static_cast<SoftmaxState&>(state).gate, out);
  }
  Tensor read_tokens(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext& context,
                     const std::string& name) const override {
    KeyValueCache& cache = static_cast<SoftmaxState&>(state.attention).cache;
    const int64_t earlier = cache.length;
    // A pattern is defined for queries and keys of one length.
    if (earlier > 0 && cache.pattern.is_limited())
      return Attention::read_tokens(x, q, k, v, state, context, name);
    append_tokens(k, v, cache);
    if (earlier == 0)
      return forward_with_input(x, q, k, v, {.causal = true, .key_lengths = {}}, context, name);
    const DType dtype = cache.keys.dtype();
    const Tensor result = cast(softmax_attention(cast(q, dtype), slice(cache.keys, 1, 0, cache.length),
                                                 slice(cache.values, 1, 0, cache.length), {.causal = true}),
                               v.dtype());
    return apply_gate(result, x);
  }
  std::unique_ptr<SourceState> read_source(const Tensor& k, const Tensor& v,
                                           const Tensor& key_lengths) const override {
    check(!gate_, "softmax attention", "a gate reads the input of the layer, which queries of a source lack");
    return Attention::read_source(k, v, key_lengths);
  }

 private:
  Tensor apply_gate(const Tensor& result, const Tensor& x) const {
    if (!gate_) return result;
    const Tensor gate = reshape(gate_->forward(x, result.dtype()), result.shape());
    return compute_in_wide_dtype([](const auto& y) { return mul(y[0], sigmoid(y[1])); }, {result, gate});
  }

  std::unique_ptr<Projection> gate_;  // null without a gate
  PatternFunction pattern_;
  double dropout_;
};

PatternFunction make_constant_pattern(const KeyPattern& pattern) {
  return [pattern](const PatternContext&) { return SparsePattern{pattern}; };
}

// Softmax attention that uses the queries as keys.
class SharedSoftmaxKind final : public SoftmaxKind {
 public:
  explicit SharedSoftmaxKind(double dropout) : SoftmaxKind(make_constant_pattern({}), dropout) {}

  Tensor forward(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionMask& mask,
                 const ForwardContext& context, const std::string& name) const override {
    check(k.shape() == q.shape(), "shared softmax attention",
          "queries are used as keys, but the shapes of q ", q.shape(), " and k ", k.shape(), " differ");
    return SoftmaxKind::forward(q, k, v, mask, context, name);
  }
};

// Implements AttentionKind::count_multiply_adds. A query attends to half of the keys on average.
double count_softmax_multiply_adds(const OptionValues&, const AttentionSize& size) {
  const auto length = static_cast<double>(size.length);
  return 2 * static_cast<double>(size.dim) * 0.5 * length * length;
}

}  // namespace

SoftmaxAttentionOptions make_softmax_attention_options(const Tensor& q, const Tensor& k,
                                                       const AttentionMask& mask, double dropout,
                                                       const ForwardContext& context,
                                                       const std::string& name) {
  const DropoutMask weights = make_weight_dropout_mask(q, k, dropout, context, name);
  SoftmaxAttentionOptions options;
  options.causal = mask.causal;
  options.key_lengths = mask.key_lengths;
  options.dropout = weights.p;
  options.dropout_stream = weights.stream;
  options.dropout_offset = weights.offset;
  return options;
}

std::unique_ptr<Attention> make_softmax_attention(const KeyWindow& window, double dropout) {
  return make_softmax_attention(KeyPattern{.window = window}, dropout);
}
std::unique_ptr<Attention> make_softmax_attention(const KeyPattern& pattern, double dropout) {
  return make_softmax_attention(make_constant_pattern(pattern), dropout);
}
std::unique_ptr<Attention> make_softmax_attention(PatternFunction pattern, double dropout) {
  return std::make_unique<SoftmaxKind>(std::move(pattern), dropout);
}

AttentionCapabilities make_sparse_attention_capabilities() {
  return {.causal = true,
          .length_masks = true,
          .unequal_lengths = make_unsupported("a pattern is defined by the positions of one sequence"),
          .recurrent = true,
          .weight_dropout = true,
          .bfloat16 = true,
          .reads_grouped_heads = true};
}

double count_pattern_multiply_adds(const PatternFunction& pattern, const AttentionSize& size) {
  constexpr int64_t kHeads = 2;  // patterns that differ between heads alternate or are random
  const SparsePattern sparse = pattern({size.length, kHeads, true, kCpu, ""});
  const SoftmaxAttentionOptions options{
      .causal = true, .pattern = sparse.pattern, .key_blocks = sparse.key_blocks};
  return 2 * static_cast<double>(size.dim) * count_attended_pairs(options, kHeads, size.length) / kHeads;
}

double count_sparse_attention_multiply_adds(double keys, const AttentionSize& size) {
  const auto length = static_cast<double>(size.length);
  return 2 * static_cast<double>(size.dim) * std::min(keys, length / 2) * length;
}

void check_option_at_most_length(const OptionValues& options, const char* name, int64_t length) {
  if (const auto value = options.get<int64_t>(name); value > length)
    throw OptionError(name,
                      concat_text("expected at most the length of the sequences, ", length, ", got ", value));
}

AttentionKind make_softmax_attention_kind() {
  return {.name = "softmax",
          .help = "softmax(q kᵀ / √dim) v, block by block: time is quadratic in the length, memory linear",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .unequal_lengths = true,
                           .recurrent = true,
                           .weight_dropout = true,
                           .bfloat16 = true,
                           .reads_grouped_heads = true},
          .options = {OptionSpec{.name = "output_gate",
                                 .default_value = std::string(kNoGate),
                                 .help = "activation of a gate of the results, from the input; none: no gate",
                                 .choices = {kNoGate, "sigmoid"},
                                 .is_fixed_by_training = true}},
          .make = [](const OptionValues& options, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            auto attention = std::make_unique<SoftmaxKind>(make_constant_pattern({}), setup.dropout);
            if (options.get<std::string>("output_gate") != kNoGate) attention->add_gate(setup);
            return attention;
          },
          .count_multiply_adds = count_softmax_multiply_adds};
}

AttentionKind make_shared_softmax_attention_kind() {
  return {.name = "shared-softmax",
          .help =
              "softmax(q qᵀ / √dim) v: softmax attention whose queries are also the keys, without the "
              "normalised keys and the masked own position of LSH attention",
          .capabilities = {.causal = true,
                           .length_masks = true,
                           .unequal_lengths = make_unsupported("queries are used as keys"),
                           .recurrent = true,
                           .weight_dropout = true,
                           .bfloat16 = true,
                           .shares_query_key = true},
          .options = {},
          .make = [](const OptionValues&, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
            return std::make_unique<SharedSoftmaxKind>(setup.dropout);
          },
          .count_multiply_adds = count_softmax_multiply_adds};
}

}  // namespace tapeformer
