// Models of the package flash-linear-attention: GLA, DeltaNet and Gated DeltaNet, also with layers of softmax
// attention.
#include <cmath>

#include "core/base/errors.h"
#include "train/pretrained/families/families.h"
#include "train/pretrained/families/field_checks.h"

namespace tapeformer {
namespace {

const std::string kFlaFrom = "model.layers.{}.", kFlaTo = "layers.{}.", kFlaAttention = kFlaTo + "attention.",
                  kFlaInner = kFlaAttention + "inner_attention.";
const std::string kFlaTypes = "layer_types", kFlaOwn = "linear_attention", kFlaFull = "full_attention",
                  kFlaSoftmax = "softmax";
// Fields that the functions below make from those of a config.json, and the other way round.
const std::string kFlaKeyDim = "key_dim", kFlaValueDim = "value_dim", kFlaValueHeads = "value_heads",
                  kFlaKeyHeads = "key_heads", kFlaOwnEps = "own_norm_eps", kFlaConv = "conv",
                  kFlaGate = "output_gate", kFlaActivation = "activation", kFlaModelHeads = "model_heads",
                  kFlaModelKeys = "model_kv_heads", kFlaModelDim = "model_head_dim",
                  kFlaPositions = "positions", kFlaBase = "attn_rope_theta", kFlaBiases = "qkv_bias";

std::vector<FamilyField> make_fla_fields(const std::string& kind) {
  const auto own = [&](const char* name) { return "attention." + kind + "." + name; };
  std::vector<FamilyField> fields{
      {.key = "hidden_size", .option = "width"},
      {.key = "num_hidden_layers", .option = "layers"},
      {.key = "intermediate_size", .option = "feedforward"},
      {.key = "norm_eps", .option = "norm_eps", .fallback = 1e-6},
      {.key = kFlaOwnEps, .option = own("norm_eps")},
      {.key = kFlaKeyDim, .option = own("key_dim")},
      {.key = kFlaValueDim, .option = own("value_dim")},
      {.key = kFlaKeyHeads, .option = own("key_heads")},
      {.key = kFlaValueHeads, .option = own("value_heads")},
      {.key = kFlaConv, .option = own("conv"), .fallback = 0},
      {.key = kFlaGate,
       .option = own("output_gate"),
       .names = {{"none", "none"}, {"swish", "silu"}, {"silu", "silu"}, {"sigmoid", "sigmoid"}}},
      {.key = kFlaActivation,
       .option = own("activation"),
       .fallback = "silu",
       .names = {{"none", "none"}, {"silu", "silu"}}},
      {.key = kFlaModelHeads, .option = "heads"},
      {.key = kFlaModelKeys, .option = "kv_heads"},
      {.key = kFlaModelDim, .option = "head_dim"},
      {.key = kFlaPositions, .option = "positions", .names = {{"none", "none"}, {"rotary", "rotary"}}},
      {.key = kFlaBase, .option = "rotary_base", .fallback = 1e4},
      {.key = kFlaBiases, .option = "projection_biases", .fallback = false},
      {.key = "hidden_act", .option = "activation", .fallback = "swish", .names = {{"swish", "silu"}}},
      {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = false},
      {.key = "max_position_embeddings", .fallback = 2048},
      {.key = "vocab_size", .fallback = 0}};
  for (const char* key : {"attn_mode", "fuse_norm", "fuse_swiglu", "fuse_cross_entropy",
                          "fuse_linear_cross_entropy", "use_l2warp"})
    fields.push_back({.key = key});
  return fields;
}

OptionValues make_fla_options() {
  return {{"norm", std::string("pre")}, {"norm_kind", std::string("rms")}, {"gated_feedforward", true},
          {"out_bias", false},          {"feedforward_biases", false},     {"predictor_bias", false}};
}

TensorRule make_fla_rule(const std::string& name, std::vector<std::string> parameters, std::string kind = {},
                         TensorForm form = {}) {
  return {.huggingface = kFlaFrom + name,
          .parameters = std::move(parameters),
          .huggingface_form = form,
          .kind = std::move(kind)};
}

// Returns the rules of all families and those of the layers of their own kind.
std::vector<TensorRule> make_fla_rules(const std::string& kind, const std::vector<TensorRule>& own) {
  std::vector<TensorRule> rules{
      {"model.embeddings.weight", "", {"value_embedding.weight"}},
      make_fla_rule("attn_norm.weight", {kFlaTo + "norm1.weight"}),
      make_fla_rule("attn.q_proj.*", {kFlaAttention + "query_projection.*"}),
      make_fla_rule("attn.k_proj.*", {kFlaAttention + "key_projection.*"}),
      make_fla_rule("attn.v_proj.*", {kFlaAttention + "value_projection.*"}),
      make_fla_rule("attn.o_proj.weight", {kFlaAttention + "out_projection.weight"}),
      make_fla_rule("attn.g_proj.weight", {kFlaInner + "output_gate.weight"}, kind)};
  for (const std::string part : {"query", "key", "value"})
    rules.push_back(make_fla_rule("attn." + part.substr(0, 1) + "_conv1d.weight",
                                  {kFlaAttention + "conv.weight[" + part + "]"}, kind,
                                  {.shape = FileShape::conv}));
  rules.insert(rules.end(), own.begin(), own.end());
  for (const auto& [name, parameter] : {std::pair("mlp_norm", "norm2"),
                                        {"mlp.gate_proj", "linear1"},
                                        {"mlp.up_proj", "linear3"},
                                        {"mlp.down_proj", "linear2"}})
    rules.push_back(make_fla_rule(std::string(name) + ".weight", {kFlaTo + parameter + ".weight"}));
  rules.push_back({"model.norm.weight", "", {"norm.weight"}});
  rules.push_back({"lm_head.weight", "", {"predictor.weight"}});
  return rules;
}

// Returns the flag in a field, and removes the field.
bool take_flag(ConfigJson& config, const std::string& key, bool fallback, const std::string& source) {
  const ConfigJson value = get_optional_field(config, key, fallback);
  if (!value.is_boolean()) refuse_field(source, key, "true or false", value);
  config.erase(key);
  return value.get<bool>();
}

int64_t take_integer(ConfigJson& config, const std::string& key, int64_t fallback,
                     const std::string& source) {
  const int64_t value = get_integer_field(config, key, 1, fallback, source);
  config.erase(key);
  return value;
}

// Returns `size` times the factor in a field, divided by `heads`, and removes the field.
int64_t take_expansion(ConfigJson& config, const std::string& key, double fallback, int64_t size,
                       int64_t heads, const std::string& source) {
  const double factor = is_missing(config, key) ? fallback : get_number_field(config, key, source);
  const double width = factor * static_cast<double>(size), rounded = std::round(width);
  constexpr double kMaxWidth = 1 << 24;
  if (!(rounded >= 1 && rounded <= kMaxWidth) || std::abs(width - rounded) > 1e-6 * width ||
      static_cast<int64_t>(rounded) % heads != 0)
    throw CheckpointError(
        concat_text(source, ": ", key, ": ", factor, " times ", size, " is no width of ", heads, " heads"));
  config.erase(key);
  return static_cast<int64_t>(rounded) / heads;
}

// Sets the sizes of the layers of softmax attention, and `layer_types`.
void read_softmax_layers(ConfigJson& config, const std::string& source) {
  const std::string group = "attn", start = source + ": " + group;
  const int64_t width = get_integer_field(config, "hidden_size", 1, source),
                layers = get_integer_field(config, "num_hidden_layers", 1, source);
  const bool has_softmax = !is_missing(config, group);
  const ConfigJson attn = has_softmax ? config.at(group) : ConfigJson();
  config.erase(group);
  config[kFlaPositions] = has_softmax ? "rotary" : "none";
  if (!has_softmax) {
    const auto heads = config.at(kFlaValueHeads).get<int64_t>(), dim = config.at(kFlaKeyDim).get<int64_t>();
    config[kFlaModelHeads] = heads;
    config[kFlaModelKeys] = heads;
    config[kFlaModelDim] = dim;
    return;
  }
  if (!attn.is_object()) refuse_field(source, group, "an object", attn);
  for (const auto& [key, value] : attn.items()) {
    const bool is_known = key == "layers" || key == "num_heads" || key == "num_kv_heads" ||
                          key == "qkv_bias" || key == "rope_theta";
    if (!is_known && !value.is_null()) refuse_field(start, key, "no value", value);
  }
  const int64_t heads = get_integer_field(attn, "num_heads", 1, start);
  if (width % heads != 0) refuse_field(start, "num_heads", concat_text("a divisor of ", width), heads);
  config[kFlaModelHeads] = heads;
  config[kFlaModelKeys] = get_integer_field(attn, "num_kv_heads", 1, heads, start);
  config[kFlaModelDim] = width / heads;
  if (!is_missing(attn, "rope_theta")) config[kFlaBase] = get_number_field(attn, "rope_theta", start);
  if (!is_missing(attn, kFlaBiases)) config[kFlaBiases] = attn.at(kFlaBiases);
  if (is_missing(attn, "layers") || !attn.at("layers").is_array())
    throw CheckpointError(start + ": layers: expected a list of layers");
  std::vector<std::string> types(static_cast<size_t>(std::min<int64_t>(layers, 10000)), kFlaOwn);
  for (const ConfigJson& layer : attn.at("layers")) {
    if (!is_integer(layer) || layer.get<int64_t>() < 0 ||
        layer.get<int64_t>() >= static_cast<int64_t>(types.size()))
      refuse_field(start, "layers", concat_text("numbers from 0 to ", types.size() - 1), layer);
    types[layer.get<size_t>()] = kFlaFull;
  }
  config[kFlaTypes] = types;
}

// Sets the fields that the three families have, from `heads`, `key_dim` and `value_dim`.
void read_fla_common_fields(ConfigJson& config, bool has_conv, const std::string& source) {
  if (!is_missing(config, "attnres_block_size"))
    refuse_field(source, "attnres_block_size", "null", config.at("attnres_block_size"));
  config[kFlaOwnEps] = get_optional_field(config, "norm_eps", 1e-6);
  const int64_t kernel = take_integer(config, "conv_size", 4, source);
  config[kFlaConv] = has_conv ? kernel : 0;
  const int64_t ratio = take_integer(config, "hidden_ratio", 4, source);
  if (is_missing(config, "intermediate_size")) {
    constexpr int64_t kMultiple = 256;
    const int64_t width = get_integer_field(config, "hidden_size", 1, source);
    const double hidden = std::floor(static_cast<double>(width) * static_cast<double>(ratio) * 2 / 3);
    config["intermediate_size"] =
        kMultiple * static_cast<int64_t>(std::ceil(std::min(hidden, 1e9) / kMultiple));
  }
  read_softmax_layers(config, source);
}

void write_fla_common_fields(ConfigJson& config) {
  const auto take = [&](const std::string& key) {
    const ConfigJson value = config.at(key);
    config.erase(key);
    return value;
  };
  const ConfigJson kernel = take(kFlaConv);
  config["use_short_conv"] = kernel != 0;
  if (kernel != 0) config["conv_size"] = kernel;
  ConfigJson attn{{"layers", ConfigJson::array()},       {"num_heads", take(kFlaModelHeads)},
                  {"num_kv_heads", take(kFlaModelKeys)}, {"qkv_bias", take(kFlaBiases)},
                  {"rope_theta", take(kFlaBase)},        {"window_size", nullptr}};
  const ConfigJson types = take(kFlaTypes);
  for (size_t layer = 0; layer < types.size(); ++layer)
    if (types[layer] == kFlaFull) attn["layers"].push_back(layer);
  if (!attn["layers"].empty()) config["attn"] = attn;
  for (const std::string& key : {kFlaOwnEps, kFlaModelDim, kFlaPositions, kFlaActivation}) config.erase(key);
}

// Sets expand_k and expand_v, and removes the sizes.
void write_expansions(ConfigJson& config) {
  const auto heads = config.at(kFlaValueHeads).get<double>(), width = config.at("hidden_size").get<double>();
  config["num_heads"] = config.at(kFlaValueHeads);
  config["expand_k"] = config.at(kFlaKeyDim).get<double>() * heads / width;
  config["expand_v"] = config.at(kFlaValueDim).get<double>() * heads / width;
  for (const std::string& key : {kFlaKeyDim, kFlaValueDim, kFlaKeyHeads, kFlaValueHeads}) config.erase(key);
}

void read_expansions(ConfigJson& config, int64_t default_heads, double default_expand_k,
                     const std::string& source) {
  const int64_t width = get_integer_field(config, "hidden_size", 1, source);
  const int64_t heads = take_integer(config, "num_heads", default_heads, source);
  config[kFlaKeyHeads] = heads;
  config[kFlaValueHeads] = heads;
  config[kFlaKeyDim] = take_expansion(config, "expand_k", default_expand_k, width, heads, source);
  config[kFlaValueDim] = take_expansion(config, "expand_v", 1, width, heads, source);
}

FamilyField accept_fla(std::string key, ConfigJson value) {
  return {.key = std::move(key), .fallback = value, .accepted = {value}};
}

// Of the two families of gated-delta.
const FamilyField kFlaNegativeEigenvalues{
    .key = "allow_neg_eigval", .option = "attention.gated-delta.negative_eigenvalues", .fallback = false};

ModelFamily make_fla_family(const char* name, const char* class_name, const std::string& kind,
                            const std::vector<TensorRule>& own) {
  return {.name = name,
          .class_name = class_name,
          .options = make_fla_options(),
          .fields = make_fla_fields(kind),
          .tensors = make_fla_rules(kind, own),
          .layer_kinds = {{kFlaOwn, kind}, {kFlaFull, kFlaSoftmax}}};
}

}  // namespace

ModelFamily make_gla_family() {
  const std::string kind = "gated-linear", decay = kFlaInner + "gates.decay.";
  ModelFamily family =
      make_fla_family("gla", "GLAForCausalLM", kind,
                      {make_fla_rule("attn.gk_proj.0.weight", {decay + "down.weight"}, kind),
                       make_fla_rule("attn.gk_proj.1.*", {decay + "up.*"}, kind),
                       make_fla_rule("attn.g_norm_swish_gate.weight", {kFlaInner + "norm.weight"}, kind)});
  family.options.set("attention." + kind + ".preset", std::string("gla"));
  family.other_names = {{".attn.g_norm.weight", ".attn.g_norm_swish_gate.weight"}};  // with fuse_norm = false
  for (const auto& [key, value] : {std::pair("use_output_gate", true),
                                   {"elementwise_affine", true},
                                   {"use_gk", true},
                                   {"use_gv", false}})
    family.fields.push_back(accept_fla(key, value));
  for (const char* key : {"feature_map", "clamp_min"}) family.fields.push_back(accept_fla(key, nullptr));
  family.read_fields = [](ConfigJson& config, const std::string& source) {
    read_expansions(config, 4, 0.5, source);
    const auto heads = config.at(kFlaValueHeads).get<int64_t>();
    if (take_integer(config, "num_kv_heads", heads, source) != heads)
      throw CheckpointError(source + ": num_kv_heads: expected as many as num_heads");
    const bool has_conv = take_flag(config, "use_short_conv", false, source);
    config[kFlaGate] = "swish";
    config[kFlaActivation] = has_conv ? "silu" : "none";
    read_fla_common_fields(config, has_conv, source);
  };
  family.write_fields = [](ConfigJson& config) {
    config.erase(kFlaGate);
    write_fla_common_fields(config);
    write_expansions(config);
  };
  return family;
}

ModelFamily make_delta_net_family() {
  const std::string kind = "gated-delta";
  ModelFamily family =
      make_fla_family("delta_net", "DeltaNetForCausalLM", kind,
                      {make_fla_rule("attn.b_proj.weight", {kFlaInner + "gates.beta.weight"}, kind),
                       make_fla_rule("attn.o_norm.weight", {kFlaInner + "norm.weight"}, kind)});
  family.options.set("attention." + kind + ".preset", std::string("delta-net"));
  family.fields.push_back(kFlaNegativeEigenvalues);
  for (const char* key : {"use_beta", "use_output_norm"}) family.fields.push_back(accept_fla(key, true));
  family.fields.push_back(accept_fla("qk_norm", "l2"));
  family.fields.push_back(accept_fla("qk_activation", "silu"));
  family.read_fields = [](ConfigJson& config, const std::string& source) {
    read_expansions(config, 16, 1, source);
    config[kFlaGate] = take_flag(config, "use_gate", false, source) ? "swish" : "none";
    read_fla_common_fields(config, take_flag(config, "use_short_conv", true, source), source);
  };
  family.write_fields = [](ConfigJson& config) {
    config["use_gate"] = config.at(kFlaGate) != "none";
    config.erase(kFlaGate);
    write_fla_common_fields(config);
    write_expansions(config);
  };
  return family;
}

ModelFamily make_gated_deltanet_family() {
  const std::string kind = "gated-delta", gates = kFlaInner + "gates.";
  ModelFamily family =
      make_fla_family("gated_deltanet", "GatedDeltaNetForCausalLM", kind,
                      {make_fla_rule("attn.a_proj.weight", {gates + "decay.weight"}, kind),
                       make_fla_rule("attn.b_proj.weight", {gates + "beta.weight"}, kind),
                       make_fla_rule("attn.A_log", {gates + "log_rate"}, kind, {.shape = FileShape::vector}),
                       make_fla_rule("attn.dt_bias", {gates + "time_step"}, kind),
                       make_fla_rule("attn.o_norm.weight", {kFlaInner + "norm.weight"}, kind)});
  family.fields.push_back(kFlaNegativeEigenvalues);
  family.read_fields = [](ConfigJson& config, const std::string& source) {
    const std::string activation = "output_gate_activation";
    const int64_t heads = take_integer(config, "num_heads", 6, source);
    config[kFlaKeyHeads] = heads;
    config[kFlaValueHeads] = take_integer(config, "num_v_heads", heads, source);
    const int64_t dim = take_integer(config, "head_dim", 256, source);
    config[kFlaKeyDim] = dim;
    config[kFlaValueDim] = take_expansion(config, "expand_v", 2, dim, 1, source);
    const bool has_gate = take_flag(config, "use_gate", true, source);
    const ConfigJson gate = get_optional_field(config, activation, "swish");
    config.erase(activation);
    config[kFlaGate] = has_gate ? gate : ConfigJson("none");
    read_fla_common_fields(config, take_flag(config, "use_short_conv", true, source), source);
  };
  family.write_fields = [](ConfigJson& config) {
    config["use_gate"] = config.at(kFlaGate) != "none";
    if (config.at(kFlaGate) != "none") config["output_gate_activation"] = config.at(kFlaGate);
    config["num_heads"] = config.at(kFlaKeyHeads);
    config["num_v_heads"] = config.at(kFlaValueHeads);
    config["head_dim"] = config.at(kFlaKeyDim);
    config["expand_v"] = config.at(kFlaValueDim).get<double>() / config.at(kFlaKeyDim).get<double>();
    for (const std::string& key : {kFlaGate, kFlaKeyDim, kFlaValueDim, kFlaKeyHeads, kFlaValueHeads})
      config.erase(key);
    write_fla_common_fields(config);
  };
  return family;
}

}  // namespace tapeformer
