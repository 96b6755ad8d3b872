// Mamba-2: layers of gated linear attention without a feed-forward block.
#include <algorithm>

#include "core/base/errors.h"
#include "train/pretrained/families/families.h"
#include "train/pretrained/families/field_checks.h"

namespace tapeformer {
namespace {

const std::string kMambaKind = "gated-linear", kMambaEps = "own_norm_eps", kMambaNorm = "output_norm",
                  kMambaHeads = "model_heads", kMambaDim = "model_head_dim", kMambaKeys = "model_kv_heads",
                  kMambaLimit = "time_step_limit";

std::string name_mamba_option(const char* name) {
  return "attention." + kMambaKind + "." + name;
}

std::vector<FamilyField> make_mamba_fields() {
  std::vector<FamilyField> fields{
      {.key = "hidden_size", .option = "width"},
      {.key = "num_hidden_layers", .option = "layers"},
      {.key = "num_heads", .option = name_mamba_option("value_heads")},
      {.key = "head_dim", .option = name_mamba_option("value_dim")},
      {.key = "n_groups", .option = name_mamba_option("key_heads"), .fallback = 8},
      {.key = "state_size", .option = name_mamba_option("key_dim"), .fallback = 128},
      {.key = "conv_kernel", .option = name_mamba_option("conv"), .fallback = 4},
      {.key = "use_conv_bias", .option = name_mamba_option("conv_bias"), .fallback = true},
      {.key = "layer_norm_epsilon", .option = "norm_eps", .fallback = 1e-5},
      {.key = kMambaEps, .option = name_mamba_option("norm_eps")},
      {.key = kMambaNorm,
       .option = name_mamba_option("output_norm"),
       .names = {{"group", "group"}, {"width", "width"}}},
      {.key = kMambaHeads, .option = "heads"},
      {.key = kMambaKeys, .option = "kv_heads"},
      {.key = kMambaDim, .option = "head_dim"},
      {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = false},
      {.key = "hidden_act", .fallback = "silu", .accepted = {"silu"}},
      {.key = "use_bias", .fallback = false, .accepted = {false}},
      {.key = "vocab_size", .fallback = 0}};
  for (const char* key : {"expand", "chunk_size", "residual_in_fp32", "rescale_prenorm_residual",
                          "time_step_rank", "time_step_min", "time_step_max", "time_step_floor"})
    fields.push_back({.key = key});
  return fields;
}

std::vector<TensorRule> make_mamba_rules() {
  const std::string from = "backbone.layers.{}.", mixer = from + "mixer.", to = "layers.{}.",
                    attention = to + "attention.", inner = attention + "inner_attention.";
  const auto part = [&](const std::string& name) {
    return std::vector<std::string>{name + "[value]", name + "[key]", name + "[query]"};
  };
  const auto rule = [](const std::string& name, std::vector<std::string> parameters, FileShape shape = {}) {
    return TensorRule{
        .huggingface = name, .parameters = std::move(parameters), .huggingface_form = {.shape = shape}};
  };
  return {
      rule("backbone.embeddings.weight", {"value_embedding.weight"}),
      rule(from + "norm.weight", {to + "norm1.weight"}),
      rule(mixer + "in_proj.weight", {inner + "output_gate.weight", attention + "value_projection.weight",
                                      attention + "key_projection.weight",
                                      attention + "query_projection.weight", inner + "gates.decay.weight"}),
      rule(mixer + "conv1d.weight", part(attention + "conv.weight"), FileShape::conv),
      rule(mixer + "conv1d.bias", part(attention + "conv.bias")),
      rule(mixer + "A_log", {inner + "gates.log_rate"}, FileShape::vector),
      rule(mixer + "D", {inner + "skip"}, FileShape::vector),
      rule(mixer + "dt_bias", {inner + "gates.time_step"}),
      rule(mixer + "norm.weight", {inner + "norm.weight"}),
      rule(mixer + "out_proj.weight", {attention + "out_projection.weight"}),
      rule("backbone.norm_f.weight", {"norm.weight"}),
      rule("lm_head.weight", {"predictor.weight"})};
}

// Infinity is no number of JSON. Files have an object in its place, or a large number.
void check_step_limit(ConfigJson& config, const std::string& source) {
  if (is_missing(config, kMambaLimit)) return;
  const ConfigJson limit = config.at(kMambaLimit), infinity{{"__float__", "Infinity"}};
  const bool is_open = limit.is_array() && limit.size() == 2 && limit[0] == 0 &&
                       (limit[1] == infinity || limit[1] == "inf" || limit[1] == "Infinity");
  if (!is_open) refuse_field(source, kMambaLimit, "0 and infinity", limit);
  config.erase(kMambaLimit);
}

void read_mamba_fields(ConfigJson& config, const std::string& source) {
  check_step_limit(config, source);
  const int64_t heads = get_integer_field(config, "num_heads", 1, source),
                width = get_integer_field(config, "hidden_size", 1, source),
                head_dim = get_integer_field(config, "head_dim", 1, source),
                expand = get_integer_field(config, "expand", 1, 2, source),
                groups = get_integer_field(config, "n_groups", 1, 8, source),
                state = get_integer_field(config, "state_size", 1, 128, source);
  constexpr int64_t kMaxWidth = 1 << 24;
  if (std::max({heads, width, head_dim, expand}) > kMaxWidth || expand * width != heads * head_dim)
    throw CheckpointError(concat_text(source, ": expand: ", expand, " times hidden_size ", width,
                                      " is not num_heads ", heads, " times head_dim ", head_dim));
  config[kMambaEps] = get_optional_field(config, "layer_norm_epsilon", 1e-5);
  config[kMambaNorm] = groups > 1 ? "group" : "width";
  config[kMambaHeads] = heads;
  config[kMambaKeys] = heads;
  config[kMambaDim] = state;
}

void write_mamba_fields(ConfigJson& config) {
  config["expand"] = config.at("num_heads").get<int64_t>() * config.at("head_dim").get<int64_t>() /
                     config.at("hidden_size").get<int64_t>();
  for (const std::string& key : {kMambaEps, kMambaNorm, kMambaHeads, kMambaKeys, kMambaDim})
    config.erase(key);
}

}  // namespace

ModelFamily make_mamba2_family() {
  return {.name = "mamba2",
          .class_name = "Mamba2ForCausalLM",
          .options = {{"norm", std::string("pre")},
                      {"norm_kind", std::string("rms")},
                      {"positions", std::string("none")},
                      {"feedforward", int64_t{0}},
                      {"predictor_bias", false},
                      {name_mamba_option("preset"), std::string("mamba2")},
                      {name_mamba_option("skip"), true}},
          .fields = make_mamba_fields(),
          .tensors = make_mamba_rules(),
          .layer_kinds = {{"linear_attention", kMambaKind}},
          .read_fields = read_mamba_fields,
          .write_fields = write_mamba_fields};
}

}  // namespace tapeformer
