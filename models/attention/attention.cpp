#include "models/attention/attention.h"

#include "core/options/part.h"
#include "models/layers/option_error.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

// The names of GateActivation::none and GateActivation::silu.
constexpr const char *kNoActivation = "none", *kSilu = "silu";
constexpr const char* kNoRecurrentForm = "this attention kind has no recurrent form";

// Throws OptionError if `options` sets an option that has no effect because of the values of other options.
void check_used(const AttentionKind& kind, const OptionValues& options) {
  for (const UnusedOption& unused :
       find_unused_options(kind.options, complete_options(kind.options, options)))
    throw OptionError(unused.name, unused.reason);
}

// Adds the options of the convolution of the projections, unless the kind has such options.
AttentionKind with_conv_options(AttentionKind kind) {
  if (kind.select_conv || has_option(kind.options, "conv")) return kind;
  kind.options.push_back({.name = "conv",
                          .default_value = int64_t{0},
                          .help =
                              "tokens that a depthwise convolution of queries, keys and values reads; 0: no "
                              "convolution",
                          .min = 0,
                          .max = double{kMaxShortConvKernel}});
  kind.options.push_back({.name = "conv_activation",
                          .default_value = std::string(kNoActivation),
                          .help = "activation after the convolution",
                          .choices = {kNoActivation, kSilu},
                          .used_if = {.option = "conv"},
                          .is_fixed_by_training = true});
  return kind;
}

// Keeps the keys and values of sources.
class KeptSource final : public SourceState {
 public:
  KeptSource(const Attention& attention, Tensor keys, Tensor values, Tensor key_lengths)
      : attention_(attention),
        keys_(std::move(keys)),
        values_(std::move(values)),
        lengths_(std::move(key_lengths)) {}
  void attend(const Tensor& q, const Tensor& out) const override {
    out.copy_from(
        attention_.forward(q, keys_, values_, {.causal = false, .key_lengths = lengths_}, {}, "source"));
  }
  std::unique_ptr<SourceState> select(std::span<const int64_t> sources) const override {
    return std::make_unique<KeptSource>(attention_, select_rows(keys_, sources),
                                        select_rows(values_, sources),
                                        lengths_.defined() ? select_rows(lengths_, sources) : lengths_);
  }

 private:
  const Attention& attention_;
  Tensor keys_, values_, lengths_;
};

std::deque<AttentionKind> make_built_in_kinds() {
  std::deque<AttentionKind> kinds{make_linear_attention_kind(),
                                  make_softmax_attention_kind(),
                                  make_lsh_attention_kind(),
                                  make_shared_softmax_attention_kind(),
                                  make_performer_attention_kind(),
                                  make_linformer_attention_kind(),
                                  make_synthesizer_attention_kind(),
                                  make_memory_compressed_attention_kind(),
                                  make_sinkhorn_attention_kind(),
                                  make_routing_attention_kind(),
                                  make_transformer_xl_attention_kind(),
                                  make_compressive_attention_kind(),
                                  make_isab_attention_kind(),
                                  make_etc_attention_kind(),
                                  make_gated_linear_attention_kind(),
                                  make_gated_delta_attention_kind(),
                                  make_window_linear_attention_kind()};
  for (AttentionKind& kind : make_pattern_attention_kinds()) kinds.push_back(std::move(kind));
  for (AttentionKind& kind : kinds) kind = with_conv_options(std::move(kind));
  return kinds;
}

Registry<AttentionKind>& registry() {
  static auto& kinds = *new Registry<AttentionKind>("attention kind", make_built_in_kinds());
  return kinds;
}

}  // namespace

std::unique_ptr<AttentionState> Attention::make_state(const AttentionStateOptions&) const {
  throw std::invalid_argument(kNoRecurrentForm);
}

void Attention::step(const Tensor&, const Tensor&, const Tensor&, AttentionState&, const Tensor&) const {
  throw std::invalid_argument(kNoRecurrentForm);
}

Tensor Attention::read_tokens(const Tensor& x, const Tensor& q, const Tensor& k, const Tensor& v,
                              const LayerState& state, const ForwardContext&, const std::string&) const {
  const DType dtype = get_compute_dtype(v.dtype());
  const Tensor result = Tensor::empty({v.size(0), q.size(1), q.size(2), v.size(3)}, dtype, v.device());
  const Tensor out = Tensor::empty({v.size(0), q.size(2), v.size(3)}, dtype, v.device());
  for (int64_t t = 0; t < q.size(1); ++t) {
    // step() can change its arguments.
    const auto token = [t, dtype](const Tensor& all) {
      const Tensor one = slice(all, 1, t, t + 1);
      Shape shape{one.size(0)};
      for (int i = 2; i < one.rank(); ++i) shape.append(one.size(i));
      return cast(one, dtype).clone().view(shape);
    };
    observe_input(token(x), state.attention);
    step(token(q), token(k), token(v), state.attention, out);
    slice(result, 1, t, t + 1).copy_from(out.view({v.size(0), 1, q.size(2), v.size(3)}));
  }
  return cast(result, v.dtype());
}

Tensor Attention::prepend_memory(const Tensor& x, const ForwardContext& context,
                                 const std::string& name) const {
  if (!context.memory) return x;
  context.memory->write(name, x);
  const Tensor rows = context.memory->read(name, x.size(0));
  return rows.defined() ? concat({rows.to(x.dtype()), x}, 1) : x;
}

std::unique_ptr<SourceState> Attention::read_source(const Tensor& k, const Tensor& v,
                                                    const Tensor& key_lengths) const {
  return std::make_unique<KeptSource>(*this, contiguous(k), contiguous(v), key_lengths);
}

Tensor Attention::forward_with_input(const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionMask& mask, const ForwardContext& context,
                                     const std::string& name) const {
  return forward(q, k, v, mask, context, name);
}

void Attention::observe_input(const Tensor&, AttentionState&) const {}

ProjectionConv AttentionKind::get_conv(const OptionValues& values) const {
  if (select_conv) return select_conv(values);
  if (!has_option(options, "conv_activation")) return {};
  return {get_value<int64_t>(options, values, "conv"),
          get_value<std::string>(options, values, "conv_activation") == kSilu ? GateActivation::silu
                                                                              : GateActivation::none,
          true};
}

OptionValues AttentionKind::make_options(
    const std::vector<std::pair<std::string, OptionValue>>& replaced) const {
  OptionValues result = default_options();
  for (const auto& [option, value] : replaced) {
    const auto found = result.values_by_name().find(option);
    if (found == result.values_by_name().end()) throw OptionError(option, "unknown option");
    if (found->second.index() != value.index()) throw OptionError(option, "wrong type");
    result.set(option, value);
  }
  return result;
}

void register_attention_kind(AttentionKind kind) {
  if (!kind.make) throw std::invalid_argument("attention kind \"" + kind.name + "\": `make` is empty");
  registry().add(with_conv_options(std::move(kind)));
}

const std::deque<AttentionKind>& list_attention_kinds() {
  return registry().list();
}

const AttentionKind& find_attention_kind(const std::string& name) {
  return registry().find(name);
}

std::unique_ptr<Attention> make_attention(const std::string& name, const OptionValues& options,
                                          const AttentionSetup& setup) {
  const AttentionKind& kind = find_attention_kind(name);
  const Capability& drops_weights = kind.capabilities.weight_dropout;
  if (setup.dropout > 0 && !drops_weights)
    throw OptionError("attention_dropout", describe_unsupported(kind, "dropout of weights", drops_weights));
  auto attention = call_with_option_prefix("attention_options", [&] {
    check_used(kind, options);
    const SegmentMemorySize memory = kind.get_segment_memory_size(options);
    if (kind.get_conv(options).is_active() && memory.tokens > 0 && !memory.stores_state)
      throw OptionError("conv", "expected 0, because the keys of earlier segments have no convolution");
    return kind.make(complete_options(kind.options, options), setup);
  });
  if (!attention)
    throw std::invalid_argument("attention kind \"" + name + "\": `make` returned no attention");
  return attention;
}

void check_attention_length(const std::string& name, const OptionValues& options, int64_t length) {
  const AttentionKind& kind = find_attention_kind(name);
  if (kind.check_length)
    call_with_option_prefix("attention_options", [&] { kind.check_length(options, length); });
}

std::string describe_unsupported(const AttentionKind& kind, const std::string& what,
                                 const Capability& missing) {
  return "attention kind \"" + kind.name + "\" has no " + what + ": " + missing.reason();
}

}  // namespace tapeformer
