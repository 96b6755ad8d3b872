#include <cmath>

#include "models/attention/kinds/gated/gates.h"
#include "models/layers/option_error.h"
#include "ops/elementwise.h"
#include "ops/rms_norm.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// The state of one token of each sequence. The buffers receive the results of observe_input() and step().
struct GatedState final : AttentionState {
  GatedState(const Gates& token_gates, const AttentionStateOptions& s)
      : gates(token_gates, s),
        sums(Tensor::zeros({s.batch, s.heads, s.dim, s.value_dim}, s.dtype, s.device)),
        result(Tensor::empty({s.batch, s.heads, s.value_dim}, s.dtype, s.device)) {}
  void reset() override { sums.fill(0); }
  int64_t bytes() const override { return sums.bytes(); }
  void copy_rows(const AttentionState& from, std::span<const RowCopy> rows) override {
    tapeformer::copy_rows(static_cast<const GatedState&>(from).sums, sums, rows);
  }

  DecodingGates gates;
  DecodingProjection output_gate;
  Tensor sums;    // (batch, heads, dim, value_dim)
  Tensor result;  // (batch, heads, value_dim)
  // The projection of the output gate and the gate, (batch, heads, value_dim); undefined if the kind has
  // none.
  Tensor gate_input, gate;
  Tensor scale;          // 1/√dim like `result`; undefined if the norm makes the scale irrelevant
  Tensor skipped, skip;  // D v, and D in the shape of `result`; undefined if the kind has no D
  Tensor norm_weight;    // the weight of a norm of groups in the shape of `result`; undefined for others
};

// Linear attention with decays, gates and the delta rule. Without a causal mask, the result is the sum of two
// directions, which share queries, keys and values and have their own decays and write strengths.
class GatedLinearKind final : public Attention {
 public:
  GatedLinearKind(const GatedLinearOptions& options, const AttentionSetup& setup)
      : options_(options),
        heads_(setup.heads),
        dim_(setup.dim),
        value_dim_(setup.value_dim()),
        groups_(setup.key_heads > 0 ? setup.key_heads : setup.heads),
        forward_gates_(options, setup) {
    const int64_t width = heads_ * value_dim_;
    add_child("gates", forward_gates_);
    if (!setup.causal) {
      reverse_gates_ = std::make_unique<Gates>(options, setup);
      add_child("reverse_gates", *reverse_gates_);
    }
    if (options.output_gate != GateActivation::none) {
      const int64_t rank = options.gate_rank == kRankOfHead ? setup.dim : options.gate_rank;
      output_gate_ = std::make_unique<Projection>(setup.input_width(), width, rank, rank > 0);
      add_child("output_gate", *output_gate_);
    }
    if (options.skips)
      add_parameter("skip", skip_, {heads_, 1}, make_constant_initializer(1), {.decays = false});
    if (options.output_norm != OutputNorm::none)
      add_parameter("norm.weight", norm_weight_,
                    {options.output_norm == OutputNorm::head ? value_dim_ : width},
                    make_constant_initializer(1));
  }

  // The segment memory keeps the state of the previous segment, and no inputs.
  Tensor prepend_memory(const Tensor& x, const ForwardContext&, const std::string&) const override {
    return x;
  }
  bool applies_rotary_positions() const override { return !options_.rotates; }

  Tensor forward(const Tensor&, const Tensor&, const Tensor&, const AttentionMask&, const ForwardContext&,
                 const std::string&) const override {
    throw std::invalid_argument("gated linear attention needs the input of the layer");
  }

  Tensor forward_with_input(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionMask& mask, const ForwardContext& context,
                            const std::string& name) const override {
    const Tensor initial = context.memory ? read_state(*context.memory, name, v) : Tensor{};
    auto [out, state] = scan(x, q, k, v, {.initial_state = initial, .lengths = mask.key_lengths});
    if (context.memory) context.memory->write(name, reshape(state, {v.size(0), 1, state_size()}));
    if (!mask.causal) {
      check(reverse_gates_ != nullptr, "gated linear attention",
            "the layer was made for causal masks, but this mask is not causal");
      out =
          compute_in_wide_dtype([](const auto& y) { return add(y[0], y[1]); },
                                {out, scan(x, q, k, v, {.lengths = mask.key_lengths, .reverse = true}).out});
    }
    return finish(out, x, v);
  }
  Tensor read_tokens(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                     const LayerState& state, const ForwardContext&, const std::string&) const override {
    const Tensor& sums = static_cast<GatedState&>(state.attention).sums;
    const auto [out, newest] = scan(x, q, k, v, {.initial_state = state.position > 0 ? sums : Tensor{}});
    sums.copy_from(newest);
    return finish(out, x, v);
  }

  std::unique_ptr<AttentionState> make_state(const AttentionStateOptions& s) const override {
    auto state = std::make_unique<GatedState>(forward_gates_, s);
    if (output_gate_) {
      state->output_gate = DecodingProjection(*output_gate_, s);
      state->gate_input = Tensor::empty_like(state->result);
      state->gate = Tensor::empty_like(state->result);
    }
    if (needs_scale()) state->scale = Tensor::full(state->result.shape(), query_scale(), s.dtype, s.device);
    const NoGradScope no_grad;
    const auto expand = [&](const Tensor& x) {
      return contiguous(add(Tensor::zeros(state->result.shape(), s.dtype, s.device), x));
    };
    if (skip_.defined()) {
      state->skip = expand(detach(skip_));
      state->skipped = Tensor::empty_like(state->result);
    }
    if (options_.output_norm == OutputNorm::group)
      state->norm_weight = expand(reshape(detach(norm_weight_), {heads_, value_dim_}));
    return state;
  }
  void observe_input(const Tensor& x, AttentionState& attention_state) const override {
    auto& state = static_cast<GatedState&>(attention_state);
    state.gates.observe(x);
    if (output_gate_) state.output_gate.forward_into(x, flatten(state.gate_input));
  }
  void step(const Tensor& q, const Tensor& k, const Tensor& v, AttentionState& attention_state,
            const Tensor& out) const override {
    auto& state = static_cast<GatedState&>(attention_state);
    if (options_.normalizes_keys) {
      l2_norm_in_place(q, query_scale());
      l2_norm_in_place(k);
    }
    GatedTokenOptions o = state.gates.values();
    if (options_.delta) o.erase = k;
    gated_linear_attention_step(q, k, v, o, state.sums, state.result);
    finish_step(state, v, out);
  }

 private:
  // Returns the results of one direction for the input x of the layer, without norm and output gate.
  GatedLinearAttentionResult scan(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                                  GatedLinearAttentionOptions o) const {
    const Tensor key = options_.normalizes_keys ? l2_norm(k) : k;
    if (options_.delta) o.erase = key;
    (o.reverse ? *reverse_gates_ : forward_gates_).apply(x, get_compute_dtype(v.dtype()), o);
    return gated_linear_attention(options_.normalizes_keys ? l2_norm(q, query_scale()) : q, key, v, o);
  }
  int64_t state_size() const { return heads_ * dim_ * value_dim_; }
  // Returns the state after the previous segment, or an undefined tensor at the start of a text.
  Tensor read_state(const SegmentMemory& memory, const std::string& name, const Tensor& v) const {
    const Tensor state = memory.read(name, v.size(0));
    return state.defined()
               ? reshape(state, {v.size(0), heads_, dim_, value_dim_}).to(get_compute_dtype(v.dtype()))
               : state;
  }
  double query_scale() const {
    return options_.scales_queries ? 1 / std::sqrt(static_cast<double>(dim_)) : 1;
  }
  // The scale of unnormalised queries. A norm of the results is the norm of the unscaled results with another
  // eps, so only results without a norm are scaled, and results to which values are added.
  double scale_of_results() const { return options_.normalizes_keys ? 1 : query_scale(); }
  bool needs_scale() const {
    return (options_.output_norm == OutputNorm::none || options_.skips) && scale_of_results() != 1;
  }
  bool gates_in_norm() const {
    return output_gate_ && !options_.gates_before_norm && options_.output_norm != OutputNorm::none;
  }
  RmsNormOptions norm_options(const Tensor& gate) const {
    const double scale = needs_scale() ? 1 : scale_of_results();
    return {.gate = gates_in_norm() ? gate : Tensor{},
            .gate_activation = options_.output_gate,
            .eps = options_.norm_eps / (scale * scale)};
  }

  static Tensor flatten(const Tensor& x) { return x.view({x.size(0), x.numel() / x.size(0)}); }
  // Applies the norm and the output gate to the results `attended` (batch, length, heads, value_dim). x is
  // the input of the layer, and v are the values.
  Tensor finish(const Tensor& attended, const Tensor& x, const Tensor& v) const {
    Tensor out = attended;
    const Shape shape = out.shape();
    Tensor gate = output_gate_ ? reshape(output_gate_->forward(x, out.dtype()), shape) : Tensor{};
    if (needs_scale())
      out = compute_in_wide_dtype([this](const auto& y) { return mul(y[0], query_scale()); }, {out});
    if (skip_.defined())
      out = compute_in_wide_dtype([this](const auto& y) { return add(y[0], mul(y[1], skip_)); }, {out, v});
    if (gate.defined() && !gates_in_norm()) out = apply_gate(out, gate);
    if (options_.output_norm == OutputNorm::none) return out;
    const int64_t width = shape[2] * shape[3];
    if (options_.output_norm == OutputNorm::group) {
      const Tensor rows = reshape(out, {shape[0], shape[1], groups_, width / groups_});
      const Tensor normalized = reshape(rms_norm(rows, {}, norm_options({})), shape);
      out = compute_in_wide_dtype(
          [&](const auto& y) {
            return mul(y[0], reshape(norm_weight_, {shape[2], shape[3]}));
          },
          {normalized});
      return gates_in_norm() ? apply_gate(out, gate) : out;
    }
    const auto norm_shape = [&](const Tensor& y) {
      return options_.output_norm == OutputNorm::width && y.defined()
                 ? reshape(y, {shape[0], shape[1], width})
                 : y;
    };
    return reshape(rms_norm(norm_shape(out), norm_weight_, norm_options(norm_shape(gate))), shape);
  }

  Tensor apply_gate(const Tensor& out, const Tensor& gate) const {
    return compute_in_wide_dtype(
        [this](const auto& y) {
          return mul(y[0], options_.output_gate == GateActivation::silu ? silu(y[1]) : sigmoid(y[1]));
        },
        {out, gate});
  }

  void finish_step(const GatedState& state, const Tensor& v, const Tensor& out) const {
    if (state.scale.defined()) mul_into(state.result, state.scale, state.result);
    if (state.skip.defined()) {
      state.skipped.copy_from(v);
      mul_into(state.skipped, state.skip, state.skipped);
      add_into(state.result, state.skipped, state.result);
    }
    const bool is_group = options_.output_norm == OutputNorm::group;
    if (is_group && gates_in_norm()) normalize_groups(state);
    if (state.gate.defined() && (is_group || !gates_in_norm())) {
      sigmoid_into(state.gate_input, state.gate);
      if (options_.output_gate == GateActivation::silu) mul_into(state.gate, state.gate_input, state.gate);
      mul_into(state.result, state.gate, state.result);
    }
    if (is_group && !gates_in_norm()) normalize_groups(state);
    if (is_group || options_.output_norm == OutputNorm::none) return out.copy_from(state.result);
    const bool flat = options_.output_norm == OutputNorm::width;
    const auto norm_shape = [&](const Tensor& y) { return flat && y.defined() ? flatten(y) : y; };
    rms_norm_into(norm_shape(state.result), norm_weight_, norm_options(norm_shape(state.gate_input)),
                  norm_shape(out));
  }

  void normalize_groups(const GatedState& state) const {
    const Tensor rows = state.result.view({state.result.size(0) * groups_, heads_ * value_dim_ / groups_});
    rms_norm_into(rows, {}, norm_options({}), rows);
    mul_into(state.result, state.norm_weight, state.result);
  }

  GatedLinearOptions options_;
  int64_t heads_, dim_, value_dim_, groups_;
  Gates forward_gates_;
  std::unique_ptr<Gates> reverse_gates_;     // null if all masks are causal
  std::unique_ptr<Projection> output_gate_;  // null if the results have no gate
  Tensor skip_;                              // D, (heads, 1); undefined without D
  Tensor norm_weight_;                       // (value_dim,) or (heads * value_dim,); undefined without a norm
};

AttentionKind make_gated_kind(const char* name, const char* help, bool delta) {
  return {
      .name = name,
      .help = help,
      .capabilities = {.causal = true,
                       .length_masks = true,
                       .unequal_lengths = make_unsupported("the state follows one sequence"),
                       .recurrent = true,
                       .weight_dropout = make_unsupported("it computes no attention weights"),
                       .bfloat16 = true,
                       .has_constant_size_state = true,
                       .can_round_step_results = true,
                       .reads_layer_input = true,
                       .approximates_softmax = false,
                       .has_projection_biases = false},
      .options = list_gated_linear_options(delta),
      .make = [delta](const OptionValues& values, const AttentionSetup& setup) -> std::unique_ptr<Attention> {
        const GatedLinearOptions options = read_gated_linear_options(values, delta);
        if (options.rotates && setup.rotary && values.get<bool>("carry_state"))
          throw OptionError("carry_state", "rotary positions begin anew in each segment: expected false");
        if (options.rotates && setup.rotary && setup.rotation.features == 0 && setup.dim % 2 != 0)
          throw OptionError("key_dim",
                            concat_text("rotary positions rotate pairs of features: expected an even "
                                        "number, got ",
                                        setup.dim));
        return std::make_unique<GatedLinearKind>(options, setup);
      },
      .select_sizes = choose_gated_head_sizes,
      .has_own_norms =
          [delta](const OptionValues& values) {
            return read_gated_linear_options(values, delta).normalizes_keys;
          },
      .resolve_options =
          [delta](const OptionValues& values, const HeadSizes& model) {
            return resolve_gated_linear_options(values, model, delta);
          },
      .select_conv =
          [delta](const OptionValues& values) { return read_gated_linear_options(values, delta).conv; },
      .compute_segment_memory_size =
          [](const OptionValues& values) {
            const bool carries = values.get<bool>("carry_state");
            return SegmentMemorySize{.tokens = carries ? 1 : 0, .stores_state = carries};
          },
      // For each token, counts the decayed update of the (dim, dim) state, the product of the query and the
      // state and, with the delta rule, the product of the key and the state.
      .count_multiply_adds =
          [delta](const OptionValues&, const AttentionSize& size) {
            const auto dim = static_cast<double>(size.dim);
            return (delta ? 3 : 2) * dim * dim * static_cast<double>(size.length);
          }};
}

}  // namespace

AttentionKind make_gated_linear_attention_kind() {
  return make_gated_kind(
      "gated-linear", "linear attention with a state that decays: RetNet, Mamba-2 and gated linear attention",
      false);
}

AttentionKind make_gated_delta_attention_kind() {
  return make_gated_kind(
      "gated-delta",
      "linear attention with decay and the delta rule: DeltaNet, Gated DeltaNet and Kimi Delta "
      "Attention",
      true);
}

}  // namespace tapeformer
