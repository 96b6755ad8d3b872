#include "models/attention/kinds/gated/options.h"
#include "models/layers/option_error.h"

namespace tapeformer {
namespace {

// The values of options that the preset decides.
constexpr const char* kPreset = "preset";
constexpr int64_t kNumberOfPreset = -1;
constexpr double kGateNormalizer = 16;  // as in GLA
constexpr double kMaxRank = 1 << 16;

struct GatedPreset {
  const char* name;
  GatedLinearOptions options;
};

// Some details of the published models are not options: GLA has keys of half the width of values, Mamba-2
// shares keys and queries between heads and adds D v to its results.
const std::vector<GatedPreset>& list_presets(bool delta) {
  using enum DecayForm;
  constexpr ProjectionConv kNoConv{}, kActivationOnly{0, GateActivation::silu};
  static const std::vector<GatedPreset> additive{
      {"mamba2",
       {.delta = false,
        .decay_scales_values = true,
        .normalizes_keys = false,
        .scales_queries = false,
        .gates_before_norm = true,
        .output_norm = OutputNorm::width}},
      {"gla", {.decay = gate, .decay_rank = 16, .delta = false, .normalizes_keys = false, .conv = kNoConv}},
      {"retnet",
       {.decay = retention, .delta = false, .normalizes_keys = false, .rotates = true, .conv = kNoConv}},
      {"lightning",
       {.decay = slope,
        .delta = false,
        .normalizes_keys = false,
        .scales_queries = false,
        .output_gate = GateActivation::sigmoid,
        .output_norm = OutputNorm::width,
        .conv = kActivationOnly}}};
  static const std::vector<GatedPreset> erasing{
      {"gated-delta-net", {}},
      {"delta-net", {.decay = none, .output_gate = GateActivation::none}},
      {"kda", {.decay = channel, .output_gate = GateActivation::sigmoid, .gate_rank = kRankOfHead}}};
  return delta ? erasing : additive;
}

GatedLinearOptions find_preset(const std::string& name, bool delta) {
  for (const GatedPreset& preset : list_presets(delta))
    if (preset.name == name) return preset.options;
  throw OptionError("preset", "unknown preset \"" + name + "\"");
}

DecayForm parse_decay(const std::string& name, const GatedLinearOptions& preset) {
  if (name == "none") return DecayForm::none;
  if (name == "head") return DecayForm::head;
  if (name == "fixed") return preset.decay == DecayForm::slope ? preset.decay : DecayForm::retention;
  return preset.delta ? DecayForm::channel : DecayForm::gate;
}

GateActivation parse_activation(const std::string& name) {
  return name == "silu"      ? GateActivation::silu
         : name == "sigmoid" ? GateActivation::sigmoid
                             : GateActivation::none;
}

std::vector<std::string> with_preset(std::vector<std::string> choices) {
  choices.insert(choices.begin(), kPreset);
  return choices;
}

// Throws OptionError for options of channel decays and of the output gate if the preset has none. If another
// option excludes them, the registry has already thrown.
void check_presets_use(const OptionValues& values, const GatedLinearOptions& o) {
  const bool per_channel =
      o.decay == DecayForm::gate || o.decay == DecayForm::channel || o.decay == DecayForm::bounded;
  const auto require = [&](const char* name, bool is_default, bool is_used, const char* condition) {
    if (!is_default && !is_used) throw OptionError(name, concat_text("has an effect only with ", condition));
  };
  require("decay_rank", values.get<int64_t>("decay_rank") == kNumberOfPreset, per_channel,
          "a decay of channels");
  require("gate_rank", values.get<int64_t>("gate_rank") == kNumberOfPreset,
          o.output_gate != GateActivation::none, "an output gate");
  require("conv_bias", !o.conv.has_bias, o.conv.kernel > 0, "a convolution");
  if (o.delta)
    require("decay_lower_bound", o.decay_bound == 0, per_channel, "a decay of channels");
  else
    require("gate_normalizer", o.gate_normalizer == kGateNormalizer, per_channel, "a decay of channels");
}

void add_size_options(std::vector<OptionSpec>& options) {
  const auto add = [&](const char* name, const char* help) {
    options.push_back({.name = name, .default_value = int64_t{0}, .help = help, .min = 0, .max = 4096});
  };
  add("value_heads", "heads of values, of states and of results; 0: as in other kinds");
  add("key_heads", "heads of queries and keys, a divisor of value_heads; 0: value_heads");
  options.back().use_if({.option = "value_heads"});
  add("key_dim", "dimensions of a query and of a key; 0: as in other kinds");
  add("value_dim", "dimensions of a value; 0: key_dim");
}

// Adds the options that only gated-delta or only gated-linear has.
void add_own_options(bool delta, const OptionCondition& per_channel, std::vector<OptionSpec>& options) {
  if (delta) {
    options.push_back({.name = "negative_eigenvalues",
                       .default_value = false,
                       .help = "write strengths up to 2 instead of 1, for problems such as parity"});
    options.push_back({.name = "decay_lower_bound",
                       .default_value = 0.0,
                       .help = "smallest log decay per token of channel decays; 0: no bound",
                       .min = -100,
                       .max = 0,
                       .used_if = per_channel});
  } else {
    options.push_back({.name = "skip",
                       .default_value = false,
                       .help = "add the values to the results, with a learned factor for each head"});
    options.push_back({.name = "gate_normalizer",
                       .default_value = kGateNormalizer,
                       .help = "divisor of the log decays of channels",
                       .min = 1e-3,
                       .max = 1e6,
                       .used_if = per_channel});
  }
}

std::string get_decay_name(DecayForm form) {
  switch (form) {
    case DecayForm::none:
      return "none";
    case DecayForm::head:
      return "head";
    case DecayForm::retention:
    case DecayForm::slope:
      return "fixed";
    default:
      return "channel";
  }
}

std::string get_activation_name(GateActivation activation) {
  return activation == GateActivation::silu      ? "silu"
         : activation == GateActivation::sigmoid ? "sigmoid"
                                                 : "none";
}

}  // namespace

GatedLinearOptions read_gated_linear_options(const OptionValues& values, bool delta) {
  GatedLinearOptions o = find_preset(values.get<std::string>("preset"), delta);
  const auto read_text = [&](const char* name, auto use) {
    if (const auto& text = values.get<std::string>(name); text != kPreset) use(text);
  };
  const auto read_number = [&](const char* name, int64_t& target) {
    if (const auto number = values.get<int64_t>(name); number != kNumberOfPreset) target = number;
  };
  o.decay_bound = delta ? values.get<double>("decay_lower_bound") : 0;
  read_text("decay", [&](const std::string& name) { o.decay = parse_decay(name, o); });
  read_number("decay_rank", o.decay_rank);
  if (!delta) {
    o.gate_normalizer = values.get<double>("gate_normalizer");
    o.skips = values.get<bool>("skip");
  }
  if (delta && values.get<bool>("negative_eigenvalues")) o.beta_range = 2;
  read_number("conv", o.conv.kernel);
  o.conv.has_bias = values.get<bool>("conv_bias");
  read_text("activation", [&](const std::string& name) { o.conv.activation = parse_activation(name); });
  read_text("qk_norm", [&](const std::string& name) { o.normalizes_keys = name == "l2"; });
  read_text("rotary", [&](const std::string& name) { o.rotates = name == "inputs"; });
  read_text("output_gate", [&](const std::string& name) { o.output_gate = parse_activation(name); });
  read_number("gate_rank", o.gate_rank);
  read_text("output_norm", [&](const std::string& name) {
    o.output_norm = name == "head"    ? OutputNorm::head
                    : name == "group" ? OutputNorm::group
                    : name == "width" ? OutputNorm::width
                                      : OutputNorm::none;
  });
  o.norm_eps = values.get<double>("norm_eps");
  if (o.decay == DecayForm::channel && o.decay_bound < 0) o.decay = DecayForm::bounded;
  check_presets_use(values, o);
  return o;
}

std::vector<OptionSpec> list_gated_linear_options(bool delta) {
  std::vector<std::string> presets;
  for (const GatedPreset& preset : list_presets(delta)) presets.emplace_back(preset.name);
  const auto text = [](const char* name, const char* help, const std::vector<std::string>& choices) {
    return OptionSpec{
        .name = name, .default_value = std::string(kPreset), .help = help, .choices = with_preset(choices)};
  };
  const auto number = [](const char* name, const char* help, double max) {
    return OptionSpec{
        .name = name, .default_value = kNumberOfPreset, .help = help, .min = kNumberOfPreset, .max = max};
  };
  const OptionCondition per_channel{.option = "decay", .values = {"channel", kPreset}};
  std::vector<OptionSpec> options{
      {.name = "preset",
       .default_value = presets.front(),
       .help = "published model whose settings are the defaults of the other options",
       .choices = presets},
      text("decay",
           delta ? "decay of the state: none, one number per head, or one per channel"
                 : "decay of the state: fixed, or from the input: one number per head, or one per channel",
           delta ? std::vector<std::string>{"none", "head", "channel"}
                 : std::vector<std::string>{"fixed", "head", "channel"}),
      number("decay_rank", "rank of the projection of channel decays; 0: full; -1: of the preset", kMaxRank)
          .use_if(per_channel),
      number("conv",
             "tokens that the convolution of queries, keys and values reads; 0: no convolution; -1: of "
             "the preset",
             double{kMaxShortConvKernel}),
      {.name = "conv_bias", .default_value = false, .help = "bias of the convolution"},
      text("activation", "activation of queries, keys and values", {"none", "silu"}),
      text("qk_norm", "norm of queries and keys", {"none", "l2"}),
      text("rotary", "rotary positions, if the model has them, rotate queries and keys", {"none", "inputs"}),
      text("output_gate", "activation of a gate of the results, from the input; none: no gate",
           {"none", "silu", "sigmoid"}),
      number("gate_rank", "rank of the projection of the output gate; 0: full; -1: of the preset", kMaxRank)
          .use_if({.option = "output_gate", .values = {"none"}, .is_negated = true}),
      text("output_norm",
           "RMS norm of the results: none, of each head, of the heads that share a key, or of all heads",
           {"none", "head", "group", "width"}),
      {.name = "norm_eps",
       .default_value = 1e-5,
       .help = "number that the norm of the results adds to the mean square",
       .min = 1e-12,
       .max = 1}};
  add_size_options(options);
  add_own_options(delta, per_channel, options);
  for (OptionSpec& option : options) option.fix_by_training();
  options.push_back({.name = "carry_state",
                     .default_value = false,
                     .help = "begin a segment of a text with the state after the previous segment"});
  return options;
}

OptionValues resolve_gated_linear_options(const OptionValues& values, const HeadSizes& model, bool delta) {
  const GatedLinearOptions o = read_gated_linear_options(values, delta);
  const HeadSizes sizes = choose_gated_head_sizes(values, model);
  const bool per_channel = get_decay_name(o.decay) == "channel",
             has_gate = o.output_gate != GateActivation::none;
  OptionValues result = values;
  result.set("decay", get_decay_name(o.decay));
  result.set("decay_rank",
             per_channel ? o.decay_rank == kRankOfHead ? sizes.dim : o.decay_rank : kNumberOfPreset);
  result.set("conv", o.conv.kernel);
  result.set("activation", get_activation_name(o.conv.activation));
  result.set("qk_norm", std::string(o.normalizes_keys ? "l2" : "none"));
  result.set("rotary", std::string(o.rotates ? "inputs" : "none"));
  result.set("output_gate", get_activation_name(o.output_gate));
  result.set("gate_rank", has_gate ? o.gate_rank == kRankOfHead ? sizes.dim : o.gate_rank : kNumberOfPreset);
  result.set("output_norm", std::string(o.output_norm == OutputNorm::head    ? "head"
                                        : o.output_norm == OutputNorm::group ? "group"
                                        : o.output_norm == OutputNorm::width ? "width"
                                                                             : "none"));
  if (sizes.query_heads == sizes.key_heads) {
    result.set("value_heads", sizes.value_heads);
    result.set("key_heads", sizes.key_heads);
  }
  result.set("key_dim", sizes.dim);
  result.set("value_dim", sizes.value_dim);
  return result;
}

HeadSizes choose_gated_head_sizes(const OptionValues& values, const HeadSizes& model) {
  HeadSizes sizes = model;
  if (const auto heads = values.get<int64_t>("value_heads"); heads > 0) {
    const auto keys = values.get<int64_t>("key_heads");
    sizes.value_heads = heads;
    sizes.query_heads = sizes.key_heads = keys > 0 ? keys : heads;
    if (heads % sizes.key_heads != 0)
      throw OptionError("key_heads",
                        concat_text("expected a divisor of value_heads = ", heads, ", got ", keys));
  }
  if (const auto dim = values.get<int64_t>("key_dim"); dim > 0) sizes.dim = sizes.value_dim = dim;
  if (const auto dim = values.get<int64_t>("value_dim"); dim > 0) sizes.value_dim = dim;
  return sizes;
}

}  // namespace tapeformer
