// GPT-2 and GPT-NeoX (Pythia).
#include "train/pretrained/families/families.h"
#include "train/pretrained/families/rotary_fields.h"

namespace tapeformer {
namespace {

const std::vector<std::pair<std::string, std::string>> kActivations = {{"gelu", "gelu"},
                                                                       {"gelu_new", "gelu_tanh"},
                                                                       {"gelu_pytorch_tanh", "gelu_tanh"},
                                                                       {"relu", "relu"},
                                                                       {"silu", "silu"}};

std::vector<std::string> list_projections() {
  std::vector<std::string> names;
  for (const char* name : {"query", "key", "value"})
    names.push_back(std::string("layers.{}.attention.") + name + "_projection.*");
  return names;
}

FamilyField accept(std::string key, ConfigJson value) {
  return {.key = std::move(key), .fallback = value, .accepted = {value}};
}

ConfigJson derive_hidden(const ConfigJson& config) {
  return 4 * config.at("n_embd").get<int64_t>();
}

ConfigJson derive_gpt2_head_dim(const ConfigJson& config) {
  const auto heads = config.at("n_head").get<int64_t>(), width = config.at("n_embd").get<int64_t>();
  return heads > 0 && width % heads == 0 ? ConfigJson(width / heads) : ConfigJson();
}

ConfigJson derive_neox_head_dim(const ConfigJson& config) {
  const auto heads = config.at("num_attention_heads").get<int64_t>(),
             width = config.at("hidden_size").get<int64_t>();
  return heads > 0 && width % heads == 0 ? ConfigJson(width / heads) : ConfigJson();
}

}  // namespace

// Files contain the matrices of GPT-2 as (in, out), and GGUF files contain them as (out, in).
ModelFamily make_gpt2_family() {
  const std::string to = "layers.{}.", from = "transformer.h.{}.";
  const TensorForm transposed{.is_transposed = true};
  ModelFamily family{.name = "gpt2", .class_name = "GPT2LMHeadModel", .gguf = "gpt2"};
  family.options = {{"norm", std::string("pre")},
                    {"norm_kind", std::string("layer")},
                    {"positions", std::string("learned")},
                    {"predictor_bias", false}};
  family.fields = {
      {.key = "n_embd", .option = "width", .gguf = "embedding_length", .aliases = {"hidden_size"}},
      {.key = "n_layer", .option = "layers", .gguf = "block_count", .aliases = {"num_hidden_layers"}},
      {.key = "n_head",
       .option = "heads",
       .gguf = "attention.head_count",
       .aliases = {"num_attention_heads"}},
      {.key = "n_positions",
       .option = "position_count",
       .gguf = "context_length",
       .fallback = 1024,
       .aliases = {"max_position_embeddings"}},
      {.key = "n_inner", .option = "feedforward", .gguf = "feed_forward_length", .derive = derive_hidden},
      {.key = "head_dim", .option = "head_dim", .derive = derive_gpt2_head_dim},
      {.key = "activation_function", .option = "activation", .fallback = "gelu_new", .names = kActivations},
      {.key = "layer_norm_epsilon",
       .option = "norm_eps",
       .gguf = "attention.layer_norm_epsilon",
       .fallback = 1e-5},
      {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = true},
      accept("scale_attn_weights", true),
      accept("scale_attn_by_inverse_layer_idx", false),
      accept("add_cross_attention", false),
      {.key = "reorder_and_upcast_attn"},
      {.key = "n_ctx"},
      {.key = "vocab_size", .gguf = "vocab_size", .fallback = 0},
  };
  for (const char* name :
       {"embd_pdrop", "resid_pdrop", "attn_pdrop", "summary_activation", "summary_first_dropout",
        "summary_proj_to_labels", "summary_type", "summary_use_proj"})
    family.fields.push_back({.key = name});
  family.tensors = {
      {"transformer.wte.weight", "token_embd.weight", {"value_embedding.weight"}},
      {"transformer.wpe.weight", "position_embd.weight", {"position_embedding.weight"}},
      {from + "ln_1.*", "blk.{}.attn_norm.*", {to + "norm1.*"}},
      {from + "attn.c_attn.*", "blk.{}.attn_qkv.*", list_projections(), transposed},
      {from + "attn.c_proj.*", "blk.{}.attn_output.*", {to + "attention.out_projection.*"}, transposed},
      {from + "ln_2.*", "blk.{}.ffn_norm.*", {to + "norm2.*"}},
      {from + "mlp.c_fc.*", "blk.{}.ffn_up.*", {to + "linear1.*"}, transposed},
      {from + "mlp.c_proj.*", "blk.{}.ffn_down.*", {to + "linear2.*"}, transposed},
      {"transformer.ln_f.*", "output_norm.*", {"norm.*"}},
      {"lm_head.weight", "output.weight", {"predictor.weight"}}};
  family.ignored_tensors = {from + "attn.bias", from + "attn.masked_bias"};
  family.optional_prefix = "transformer.";
  return family;
}

ModelFamily make_gpt_neox_family() {
  const std::string to = "layers.{}.", from = "gpt_neox.layers.{}.";
  ModelFamily family{.name = "gpt_neox", .class_name = "GPTNeoXForCausalLM", .gguf = "gptneox"};
  family.options = {{"norm", std::string("pre")},
                    {"norm_kind", std::string("layer")},
                    {"positions", std::string("rotary")},
                    {"predictor_bias", false}};
  family.fields = {
      {.key = "hidden_size", .option = "width", .gguf = "embedding_length"},
      {.key = "num_hidden_layers", .option = "layers", .gguf = "block_count"},
      {.key = "num_attention_heads", .option = "heads", .gguf = "attention.head_count"},
      {.key = "head_dim", .option = "head_dim", .derive = derive_neox_head_dim},
      {.key = "intermediate_size", .option = "feedforward", .gguf = "feed_forward_length"},
      {.key = "layer_norm_eps",
       .option = "norm_eps",
       .gguf = "attention.layer_norm_epsilon",
       .fallback = 1e-5},
      {.key = "rope_theta",
       .option = "rotary_base",
       .gguf = "rope.freq_base",
       .fallback = 1e4,
       .aliases = {"rotary_emb_base"}},
      {.key = "partial_rotary_factor", .option = "rotary_share", .fallback = 0.25, .aliases = {"rotary_pct"}},
      {.key = "hidden_act", .option = "activation", .fallback = "gelu", .names = kActivations},
      {.key = "use_parallel_residual",
       .option = "parallel_residual",
       .gguf = "use_parallel_residual",
       .fallback = true},
      {.key = "attention_bias", .option = "projection_biases", .fallback = true},
      {.key = "tie_word_embeddings", .option = "tied_embeddings", .fallback = false},
      {.key = "max_position_embeddings", .gguf = "context_length", .fallback = 2048},
      {.key = "hidden_dropout"},
      {.key = "classifier_dropout"},
      {.key = "vocab_size", .gguf = "vocab_size", .fallback = 0},
  };
  for (FamilyField& field : make_rotary_scaling_fields()) family.fields.push_back(std::move(field));
  const std::vector<std::string> projections = list_projections();
  family.tensors = {
      {"gpt_neox.embed_in.weight", "token_embd.weight", {"value_embedding.weight"}},
      {from + "input_layernorm.*", "blk.{}.attn_norm.*", {to + "norm1.*"}},
      {from + "attention.query_key_value.*", "blk.{}.attn_qkv.*", projections, {RowOrder::by_head}},
      {from + "attention.dense.*", "blk.{}.attn_output.*", {to + "attention.out_projection.*"}},
      {from + "post_attention_layernorm.*", "blk.{}.ffn_norm.*", {to + "norm2.*"}},
      {from + "mlp.dense_h_to_4h.*", "blk.{}.ffn_up.*", {to + "linear1.*"}},
      {from + "mlp.dense_4h_to_h.*", "blk.{}.ffn_down.*", {to + "linear2.*"}},
      {"gpt_neox.final_layer_norm.*", "output_norm.*", {"norm.*"}},
      {"embed_out.weight", "output.weight", {"predictor.weight"}}};
  family.ignored_tensors = {from + "attention.bias", from + "attention.masked_bias",
                            from + "attention.rotary_emb.inv_freq"};
  return family;
}

}  // namespace tapeformer
