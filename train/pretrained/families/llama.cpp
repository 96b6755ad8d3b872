// Llama, and the families that differ from it in biases and norms: Qwen2, Qwen3 and Gemma.
#include "train/pretrained/families/families.h"
#include "train/pretrained/families/rotary_fields.h"

namespace tapeformer {
namespace {

ConfigJson derive_head_dim(const ConfigJson& config) {
  const auto heads = config.at("num_attention_heads").get<int64_t>();
  const auto width = config.at("hidden_size").get<int64_t>();
  return heads > 0 && width % heads == 0 ? ConfigJson(width / heads) : ConfigJson();
}

ConfigJson copy_heads(const ConfigJson& config) {
  return config.at("num_attention_heads");
}

std::vector<FamilyField> make_common_fields() {
  std::vector<FamilyField> fields{
      {.key = "hidden_size", .option = "width", .gguf = "embedding_length"},
      {.key = "num_hidden_layers", .option = "layers", .gguf = "block_count"},
      {.key = "num_attention_heads", .option = "heads", .gguf = "attention.head_count"},
      {.key = "num_key_value_heads",
       .option = "kv_heads",
       .gguf = "attention.head_count_kv",
       .derive = copy_heads},
      {.key = "head_dim", .option = "head_dim", .gguf = "attention.key_length", .derive = derive_head_dim},
      {.key = "intermediate_size", .option = "feedforward", .gguf = "feed_forward_length"},
      {.key = "rms_norm_eps",
       .option = "norm_eps",
       .gguf = "attention.layer_norm_rms_epsilon",
       .fallback = 1e-6},
      {.key = "rope_theta", .option = "rotary_base", .gguf = "rope.freq_base", .fallback = 1e4},
      {.key = "partial_rotary_factor", .fallback = 1.0, .accepted = {1.0}},
      {.key = "rope_interleaved", .fallback = false, .accepted = {false}},
      {.key = "max_position_embeddings", .gguf = "context_length", .fallback = 2048},
      {.key = "vocab_size", .gguf = "vocab_size", .fallback = 0},
  };
  for (FamilyField& field : make_rotary_scaling_fields()) fields.push_back(std::move(field));
  return fields;
}

OptionValues make_common_options() {
  return {{"norm", std::string("pre")},
          {"norm_kind", std::string("rms")},
          {"positions", std::string("rotary")},
          {"gated_feedforward", true},
          {"predictor_bias", false}};
}

// Adds rules of the attention of a layer. Files for the architecture "llama" have other orders of rows than
// those of other architectures.
void add_attention(std::vector<TensorRule>& rules, bool is_interleaved) {
  const TensorForm rotated{.order = is_interleaved ? RowOrder::interleaved : RowOrder::plain};
  const std::string from = "model.layers.{}.self_attn.", to = "layers.{}.attention.";
  rules.push_back({.huggingface = from + "q_proj.*",
                   .gguf = "blk.{}.attn_q.*",
                   .parameters = {to + "query_projection.*"},
                   .gguf_form = rotated});
  rules.push_back({.huggingface = from + "k_proj.*",
                   .gguf = "blk.{}.attn_k.*",
                   .parameters = {to + "key_projection.*"},
                   .gguf_form = rotated});
  rules.push_back({from + "v_proj.*", "blk.{}.attn_v.*", {to + "value_projection.*"}});
  rules.push_back({from + "o_proj.*", "blk.{}.attn_output.*", {to + "out_projection.*"}});
  rules.push_back({from + "q_norm.weight", "blk.{}.attn_q_norm.weight", {to + "query_norm.weight"}});
  rules.push_back({from + "k_norm.weight", "blk.{}.attn_k_norm.weight", {to + "key_norm.weight"}});
}

std::vector<TensorRule> make_rules(bool is_interleaved) {
  const std::string from = "model.layers.{}.", to = "layers.{}.";
  std::vector<TensorRule> rules{
      {"model.embed_tokens.weight", "token_embd.weight", {"value_embedding.weight"}},
      {from + "input_layernorm.weight", "blk.{}.attn_norm.weight", {to + "norm1.weight"}}};
  add_attention(rules, is_interleaved);
  rules.push_back(
      {from + "post_attention_layernorm.weight", "blk.{}.ffn_norm.weight", {to + "norm2.weight"}});
  rules.push_back({from + "mlp.gate_proj.*", "blk.{}.ffn_gate.*", {to + "linear1.*"}});
  rules.push_back({from + "mlp.up_proj.*", "blk.{}.ffn_up.*", {to + "linear3.*"}});
  rules.push_back({from + "mlp.down_proj.*", "blk.{}.ffn_down.*", {to + "linear2.*"}});
  rules.push_back({"model.norm.weight", "output_norm.weight", {"norm.weight"}});
  rules.push_back({"lm_head.weight", "output.weight", {"predictor.weight"}});
  return rules;
}

void add_fields(ModelFamily& family, const std::vector<FamilyField>& fields) {
  family.fields.insert(family.fields.end(), fields.begin(), fields.end());
}

FamilyField make_tied_field(bool fallback) {
  return {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = fallback};
}

FamilyField make_silu_field() {
  return {.key = "hidden_act", .option = "activation", .fallback = "silu", .names = {{"silu", "silu"}}};
}

// The fields with which Qwen describes layers that see only a part of the text.
std::vector<FamilyField> make_window_fields() {
  return {{.key = "use_sliding_window", .fallback = false, .accepted = {false}},
          {.key = "sliding_window"},
          {.key = "max_window_layers"}};
}

}  // namespace

ModelFamily make_llama_family() {
  ModelFamily family{
      .name = "llama",
      .class_name = "LlamaForCausalLM",
      .gguf = "llama",
      .options = make_common_options(),
      .fields = make_common_fields(),
      .tensors = make_rules(true),
      .ignored_tensors = {"model.layers.{}.self_attn.rotary_emb.inv_freq", "rope_freqs.weight"}};
  add_fields(family, {make_tied_field(false),
                      make_silu_field(),
                      {.key = "attention_bias", .option = "projection_biases", .fallback = false},
                      {.key = "mlp_bias", .option = "feedforward_biases", .fallback = false},
                      {.key = "pretraining_tp"},
                      {.key = "is_llama_config"}});
  return family;
}

ModelFamily make_qwen2_family() {
  ModelFamily family{.name = "qwen2",
                     .class_name = "Qwen2ForCausalLM",
                     .gguf = "qwen2",
                     .options = make_common_options(),
                     .fields = make_common_fields(),
                     .tensors = make_rules(false)};
  family.options.set("projection_biases", true);
  family.options.set("out_bias", false);
  family.options.set("feedforward_biases", false);
  add_fields(family, {make_tied_field(false), make_silu_field()});
  add_fields(family, make_window_fields());
  return family;
}

ModelFamily make_qwen3_family() {
  ModelFamily family{.name = "qwen3",
                     .class_name = "Qwen3ForCausalLM",
                     .gguf = "qwen3",
                     .options = make_common_options(),
                     .fields = make_common_fields(),
                     .tensors = make_rules(false)};
  family.options.set("qk_norm", true);
  family.options.set("feedforward_biases", false);
  add_fields(family, {make_tied_field(false),
                      make_silu_field(),
                      {.key = "attention_bias", .option = "projection_biases", .fallback = false}});
  add_fields(family, make_window_fields());
  return family;
}

// The embedding of Gemma is multiplied by √width, and the predictor is not. Its first files say "gelu" for
// the approximation with tanh, as transformers reads them.
ModelFamily make_gemma_family() {
  ModelFamily family{.name = "gemma",
                     .class_name = "GemmaForCausalLM",
                     .options = make_common_options(),
                     .fields = make_common_fields(),
                     .tensors = make_rules(false)};
  family.options.set("norm_offset", true);
  family.options.set("feedforward_biases", false);
  family.options.set("tied_embeddings", false);
  for (TensorRule& rule : family.tensors) {
    rule.gguf.clear();
    if (rule.parameters[0] == "value_embedding.weight") rule.is_scaled = true;
    if (rule.parameters[0] == "predictor.weight") rule.huggingface = "model.embed_tokens.weight";
  }
  add_fields(
      family,
      {{.key = "tie_word_embeddings", .fallback = true, .accepted = {true}},
       {.key = "hidden_act",
        .option = "activation",
        .fallback = "gelu_pytorch_tanh",
        .names = {{"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu_tanh"}}},
       {.key = "hidden_activation", .fallback = "gelu_pytorch_tanh", .accepted = {"gelu_pytorch_tanh"}},
       {.key = "use_bidirectional_attention", .fallback = false, .accepted = {false}},
       {.key = "attention_bias", .option = "projection_biases", .fallback = false}});
  for (FamilyField& field : family.fields)
    if (field.key == "head_dim") field = {.key = "head_dim", .option = "head_dim", .fallback = 256};
  return family;
}

}  // namespace tapeformer
