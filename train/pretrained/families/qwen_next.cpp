// Qwen3-Next without experts, and the language models of Qwen3.5: layers of gated delta attention, and layers
// of softmax attention with an output gate.
#include <algorithm>

#include "core/base/errors.h"
#include "train/pretrained/families/families.h"
#include "train/pretrained/families/field_checks.h"
#include "train/pretrained/families/rotary_fields.h"

namespace tapeformer {
namespace {

const std::string kQwenDelta = "gated-delta", kQwenSoftmax = "softmax", kQwenDeltaEps = "linear_norm_eps",
                  kQwenInterval = "full_attention_interval", kQwenTypes = "layer_types",
                  kQwenLayers = "num_hidden_layers";

std::vector<FamilyField> make_qwen_fields() {
  const auto delta = [](const char* name) { return "attention." + kQwenDelta + "." + name; };
  std::vector<FamilyField> fields{
      {.key = "hidden_size", .option = "width"},
      {.key = kQwenLayers, .option = "layers"},
      {.key = "num_attention_heads", .option = "heads"},
      {.key = "num_key_value_heads", .option = "kv_heads"},
      {.key = "head_dim", .option = "head_dim", .fallback = 256},
      {.key = "intermediate_size", .option = "feedforward"},
      {.key = "rms_norm_eps", .option = "norm_eps", .fallback = 1e-6},
      {.key = kQwenDeltaEps, .option = delta("norm_eps"), .fallback = 1e-6},
      {.key = "linear_conv_kernel_dim", .option = delta("conv"), .fallback = 4},
      {.key = "linear_key_head_dim", .option = delta("key_dim"), .fallback = 128},
      {.key = "linear_value_head_dim", .option = delta("value_dim"), .fallback = 128},
      {.key = "linear_num_key_heads", .option = delta("key_heads"), .fallback = 16},
      {.key = "linear_num_value_heads", .option = delta("value_heads"), .fallback = 32},
      {.key = "rope_theta", .option = "rotary_base", .fallback = 1e4},
      {.key = "partial_rotary_factor", .option = "rotary_share", .fallback = 0.25},
      {.key = "hidden_act", .option = "activation", .fallback = "silu", .names = {{"silu", "silu"}}},
      {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = false},
      {.key = "attention_bias", .fallback = false, .accepted = {false}},
      {.key = "max_position_embeddings", .fallback = 32768},
      {.key = "vocab_size", .fallback = 0}};
  for (FamilyField& field : make_rotary_scaling_fields()) fields.push_back(std::move(field));
  return fields;
}

OptionValues make_qwen_options() {
  return {{"norm", std::string("pre")},
          {"norm_kind", std::string("rms")},
          {"norm_offset", true},
          {"qk_norm", true},
          {"positions", std::string("rotary")},
          {"gated_feedforward", true},
          {"projection_biases", false},
          {"feedforward_biases", false},
          {"predictor_bias", false},
          {"attention." + kQwenSoftmax + ".output_gate", std::string("sigmoid")}};
}

const std::string kQwenFrom = "model.layers.{}.", kQwenTo = "layers.{}.",
                  kQwenAttention = kQwenTo + "attention.", kQwenInner = kQwenAttention + "inner_attention.";

std::vector<TensorRule> make_qwen_softmax_rules() {
  const std::string from = kQwenFrom + "self_attn.";
  const auto rule = [&](const std::string& name, std::vector<std::string> parameters, RowOrder order = {}) {
    return TensorRule{.huggingface = from + name,
                      .parameters = std::move(parameters),
                      .huggingface_form = {order},
                      .kind = kQwenSoftmax};
  };
  return {
      rule("q_proj.weight", {kQwenAttention + "query_projection.weight", kQwenInner + "output_gate.weight"},
           RowOrder::by_head),
      rule("k_proj.weight", {kQwenAttention + "key_projection.weight"}),
      rule("v_proj.weight", {kQwenAttention + "value_projection.weight"}),
      rule("q_norm.weight", {kQwenAttention + "query_norm.weight"}),
      rule("k_norm.weight", {kQwenAttention + "key_norm.weight"}),
      rule("o_proj.weight", {kQwenAttention + "out_projection.weight"})};
}

TensorRule make_qwen_delta_rule(const std::string& name, std::vector<std::string> parameters,
                                TensorForm form = {}) {
  return {.huggingface = kQwenFrom + "linear_attn." + name,
          .parameters = std::move(parameters),
          .huggingface_form = form,
          .kind = kQwenDelta};
}

// The tensors of a layer of gated delta attention that both families have.
std::vector<TensorRule> make_qwen_delta_rules() {
  return {make_qwen_delta_rule("conv1d.weight", {kQwenAttention + "conv.weight"}, {.shape = FileShape::conv}),
          make_qwen_delta_rule("A_log", {kQwenInner + "gates.log_rate"}, {.shape = FileShape::vector}),
          make_qwen_delta_rule("dt_bias", {kQwenInner + "gates.time_step"}),
          make_qwen_delta_rule("norm.weight", {kQwenInner + "norm.weight"}),
          make_qwen_delta_rule("out_proj.weight", {kQwenAttention + "out_projection.weight"})};
}

std::vector<TensorRule> make_qwen_rules(const std::vector<TensorRule>& projections) {
  std::vector<TensorRule> rules{
      {"model.embed_tokens.weight", "", {"value_embedding.weight"}},
      {kQwenFrom + "input_layernorm.weight", "", {kQwenTo + "norm1.weight"}},
      {kQwenFrom + "post_attention_layernorm.weight", "", {kQwenTo + "norm2.weight"}},
      {kQwenFrom + "mlp.gate_proj.weight", "", {kQwenTo + "linear1.weight"}},
      {kQwenFrom + "mlp.up_proj.weight", "", {kQwenTo + "linear3.weight"}},
      {kQwenFrom + "mlp.down_proj.weight", "", {kQwenTo + "linear2.weight"}}};
  for (const auto& list : {make_qwen_softmax_rules(), projections, make_qwen_delta_rules()})
    rules.insert(rules.end(), list.begin(), list.end());
  rules.push_back({"model.norm.weight", "", {"norm.weight"}});
  rules.push_back({"lm_head.weight", "", {"predictor.weight"}});
  return rules;
}

void read_qwen_common_fields(ConfigJson& config, const std::string& source) {
  config[kQwenDeltaEps] = get_optional_field(config, "rms_norm_eps", 1e-6);
  const int64_t interval = get_integer_field(config, kQwenInterval, 1, 4, source);
  config.erase(kQwenInterval);
  if (!is_missing(config, kQwenTypes)) return;
  constexpr int64_t kMaxLayers = 10000;
  const int64_t layers = get_integer_field(config, kQwenLayers, 1, source);
  if (layers > kMaxLayers) refuse_field(source, kQwenLayers, concat_text("at most ", kMaxLayers), layers);
  for (int64_t layer = 1; layer <= layers; ++layer)
    config[kQwenTypes].push_back(layer % interval == 0 ? "full_attention" : "linear_attention");
}

// Throws CheckpointError if a layer has experts.
void check_experts(ConfigJson& config, const std::string& source) {
  const std::string experts = "num_experts", dense_layers = "mlp_only_layers", step = "decoder_sparse_step";
  const int64_t count = get_integer_field(config, experts, 0, 512, source);
  const int64_t interval = get_integer_field(config, step, 1, 1, source);
  const ConfigJson dense = get_optional_field(config, dense_layers, ConfigJson::array());
  if (!dense.is_array()) refuse_field(source, dense_layers, "a list of layers", dense);
  for (int64_t layer = 0; layer < static_cast<int64_t>(config.at(kQwenTypes).size()); ++layer)
    if (count > 0 && (layer + 1) % interval == 0 &&
        std::find(dense.begin(), dense.end(), layer) == dense.end())
      throw CheckpointError(concat_text(source, ": ", experts, ": layer ", layer, " has ", count,
                                        " experts, which the program does not implement: expected 0, or all "
                                        "layers in ",
                                        dense_layers));
  for (const std::string& key : {experts, dense_layers, step}) config.erase(key);
}

ModelFamily make_qwen_family(const char* name, const char* class_name,
                             const std::vector<TensorRule>& projections) {
  return {.name = name,
          .class_name = class_name,
          .options = make_qwen_options(),
          .fields = make_qwen_fields(),
          .tensors = make_qwen_rules(projections),
          .layer_kinds = {{"linear_attention", kQwenDelta}, {"full_attention", kQwenSoftmax}},
          .read_fields = read_qwen_common_fields,
          .write_fields = [](ConfigJson& config) { config.erase(kQwenDeltaEps); }};
}

}  // namespace

// For each head of keys, the rows of in_proj_qkvz are those of a query, of a key, of the values and of the
// gates.
ModelFamily make_qwen3_next_family() {
  const TensorForm by_head{RowOrder::by_head};
  ModelFamily family = make_qwen_family(
      "qwen3_next", "Qwen3NextForCausalLM",
      {make_qwen_delta_rule(
           "in_proj_qkvz.weight",
           {kQwenAttention + "query_projection.weight", kQwenAttention + "key_projection.weight",
            kQwenAttention + "value_projection.weight", kQwenInner + "output_gate.weight"},
           by_head),
       make_qwen_delta_rule("in_proj_ba.weight",
                            {kQwenInner + "gates.beta.weight", kQwenInner + "gates.decay.weight"}, by_head)});
  for (const char* key : {"moe_intermediate_size", "shared_expert_intermediate_size", "num_experts_per_tok",
                          "norm_topk_prob", "output_router_logits", "router_aux_loss_coef"})
    family.fields.push_back({.key = key});
  family.ignored_tensors = {"mtp.*"};
  family.read_fields = [](ConfigJson& config, const std::string& source) {
    read_qwen_common_fields(config, source);
    check_experts(config, source);
  };
  family.write_fields = [](ConfigJson& config) {
    config.erase(kQwenDeltaEps);
    config["num_experts"] = 0;
  };
  return family;
}

// The positions of pictures have three coordinates, which are equal for texts.
ModelFamily make_qwen3_5_family() {
  ModelFamily family = make_qwen_family(
      "qwen3_5_text", "Qwen3_5ForCausalLM",
      {make_qwen_delta_rule("in_proj_qkv.weight", {kQwenAttention + "query_projection.weight",
                                                   kQwenAttention + "key_projection.weight",
                                                   kQwenAttention + "value_projection.weight"}),
       make_qwen_delta_rule("in_proj_z.weight", {kQwenInner + "output_gate.weight"}),
       make_qwen_delta_rule("in_proj_b.weight", {kQwenInner + "gates.beta.weight"}),
       make_qwen_delta_rule("in_proj_a.weight", {kQwenInner + "gates.decay.weight"})});
  family.outer_name = "qwen3_5";
  family.outer_prefix = {"model.language_model.", "model."};
  family.ignored_tensors = {"mtp.*", "model.visual.*"};
  family.ignored_rotary_fields = {"mrope_section", "mrope_interleaved"};
  for (const char* key : {"mtp_num_hidden_layers", "mtp_use_dedicated_embeddings", "mamba_ssm_dtype"})
    family.fields.push_back({.key = key});
  family.fields.push_back({.key = "attn_output_gate", .fallback = true, .accepted = {true}});
  return family;
}

}  // namespace tapeformer
