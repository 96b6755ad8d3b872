// Models of Hugging Face as models of the program: golden values of the package transformers, wrong orders
// that the comparison must find, and damaged folders.
#include <doctest/doctest.h>

#include <functional>

#include "ops/view.h"
#include "tests/data/text/piece_model.h"
#include "tests/support/random.h"
#include "tests/train/pretrained/family_folder.h"
#include "train/pretrained/pretrained_model.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

double compare_logits(const std::string& path, const std::string& name) {
  const SafetensorsFile file = open_golden_file("transformers");
  const PretrainedModel imported = read_pretrained_model(path);
  const NoGradScope no_grad;
  return max_difference(imported.model->forward(file.read(name + ".tokens"), {}).to(DType::float64),
                        file.read(name + ".logits"));
}

using Change = std::function<void(FamilyFolder&)>;

double compare_changed(const std::string& name, const Change& change) {
  FamilyFolder folder(name);
  change(folder);
  return compare_logits(folder.write(), name);
}

std::string import_error(const std::string& name, const Change& change) {
  FamilyFolder folder(name);
  change(folder);
  const std::string path = folder.write();
  return message_of<CheckpointError>([&] { read_pretrained_model(path); });
}

void check_contains(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(contains(text, part), "got: ", text, "\nexpected: ", part);
}

Tensor reorder_rows(const Tensor& x, const std::vector<int64_t>& order) {
  const int64_t rows = x.size(0) / static_cast<int64_t>(order.size());
  std::vector<Tensor> parts;
  for (const int64_t i : order) parts.push_back(slice(x, 0, i * rows, (i + 1) * rows));
  return concat(parts, 0).clone();
}

const std::string kLayer = "model.layers.0.";
constexpr double kLogitTolerance = 1e-4;

}  // namespace

TEST_CASE("imported models of transformers have its logits and its weights") {
  for (const std::string& name : list_golden_families()) {
    CAPTURE(name);
    const FamilyFolder folder(name);
    const std::string path = folder.write();
    CHECK(compare_logits(path, name) < kLogitTolerance);
    const PretrainedModel imported = read_pretrained_model(path);
    const auto expected = read_golden_tensors(name, "weight");
    CHECK(imported.model->parameters().size() == expected.size());
    for (const auto& [bound_name, parameter] : imported.model->parameters()) {
      const std::string& parameter_name = bound_name;
      CAPTURE(parameter_name);
      CHECK(max_difference(parameter.alias(), expected.at(parameter_name)) == 0);
    }
    CHECK(imported.tokenizer->vocabulary_size() == 13);
    CHECK(imported.tokenizer->get_token_text(10) == "k");
    CHECK(imported.tokenizer->get_token_text(11).empty());
  }
}

TEST_CASE("the comparison of imported models finds five wrong orders and numbers") {
  const auto swap = [](FamilyFolder& f, const std::string& a, const std::string& b) {
    std::swap(f.tensors.at(kLayer + a), f.tensors.at(kLayer + b));
  };
  const auto reorder = [](FamilyFolder& f, const std::string& part, const std::vector<int64_t>& order) {
    Tensor& x = f.tensors.at(kLayer + part);
    x = reorder_rows(x, order);
  };
  CHECK(compare_changed("llama", [](FamilyFolder&) {}) < kLogitTolerance);
  CHECK(compare_changed("llama", [&](FamilyFolder& f) {
          reorder(f, "self_attn.q_proj.weight", {0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15});
          reorder(f, "self_attn.k_proj.weight", {0, 2, 1, 3, 4, 6, 5, 7});
        }) > 1e-3);
  CHECK(compare_changed(
            "llama", [&](FamilyFolder& f) { swap(f, "mlp.gate_proj.weight", "mlp.up_proj.weight"); }) > 1e-3);
  CHECK(compare_changed("llama", [](FamilyFolder& f) { f.config["rope_parameters"]["rope_theta"] = 1e4; }) >
        1e-3);
  CHECK(compare_changed("llama", [&](FamilyFolder& f) {
          reorder(f, "self_attn.q_proj.weight", {0, 2, 1, 3});
        }) > 1e-3);
  CHECK(compare_changed("llama", [](FamilyFolder& f) { f.config["rms_norm_eps"] = 1e-3; }) > 1e-3);
}

TEST_CASE("fields of earlier versions of transformers have the same meaning") {
  CHECK(compare_changed("llama", [](FamilyFolder& f) {
          f.config["rope_theta"] = f.config["rope_parameters"]["rope_theta"];
          f.config.erase("rope_parameters");
          f.config["rope_scaling"] = nullptr;
          f.config.erase("head_dim");
        }) < kLogitTolerance);
  CHECK(compare_changed("gpt_neox", [](FamilyFolder& f) {
          f.config["rotary_pct"] = 0.5;
          f.config["rotary_emb_base"] = 10000;
          f.config.erase("rope_parameters");
          f.tensors["gpt_neox.layers.0.attention.masked_bias"] = Tensor::zeros({1});
        }) < kLogitTolerance);
  CHECK(compare_changed("gpt2", [](FamilyFolder& f) {
          std::map<std::string, Tensor> short_names;
          for (const auto& [name, tensor] : f.tensors) short_names[name.substr(name.find('.') + 1)] = tensor;
          short_names["h.0.attn.bias"] = Tensor::zeros({1, 1, 12, 12});
          f.tensors = short_names;
        }) < kLogitTolerance);
}

TEST_CASE("rotary positions in two objects must be the same, and an empty object has no effect") {
  const auto with_scaling = [](const nlohmann::ordered_json& scaling) {
    return [=](FamilyFolder& f) { f.config["rope_scaling"] = scaling; };
  };
  const std::string different = "rope_parameters and rope_scaling describe different rotary positions";
  CHECK(compare_changed("llama", with_scaling(nlohmann::ordered_json::object())) < kLogitTolerance);
  // The base of rope_scaling is that beside the objects.
  check_contains(import_error("llama", with_scaling({{"rope_type", "default"}})), different);
  CHECK(compare_changed("llama", [](FamilyFolder& f) {
          f.config["rope_scaling"] = {{"partial_rotary_factor", 1.0}, {"type", "default"}};
          f.config["rope_theta"] = f.config["rope_parameters"]["rope_theta"];
        }) < kLogitTolerance);
  check_contains(
      import_error("llama", with_scaling({{"rope_theta", 100}, {"type", "linear"}, {"factor", 2}})),
      different);
  for (const char* entry : {"attention_factor", "beta_fast", "beta_slow"})
    check_contains(
        import_error("llama",
                     [&](FamilyFolder& f) {
                       f.config["rope_parameters"] = {{"rope_type", "yarn"}, {"factor", 4}, {entry, 0}};
                     }),
        std::string("rope_parameters.") + entry + ": expected a number above 0, got 0");
}

TEST_CASE("two names of one field must have one value, and GPT-NeoX has its own names of rotary positions") {
  const auto neox = [](const nlohmann::ordered_json& fields) {
    return [=](FamilyFolder& f) {
      f.config.erase("rope_parameters");
      f.config["rotary_pct"] = 0.5;
      f.config.update(fields);
    };
  };
  CHECK(compare_changed("gpt_neox", neox({{"rope_theta", 10000}, {"rotary_emb_base", 1e4}})) <
        kLogitTolerance);
  check_contains(import_error("gpt_neox", neox({{"rotary_emb_base", 700}, {"rope_theta", 300}})),
                 "rotary_emb_base: expected rope_theta, 300, got 700");
  check_contains(import_error("gpt_neox", neox({{"partial_rotary_factor", 0.25}})),
                 "rotary_pct: expected partial_rotary_factor, 0.25, got 0.5");
  check_contains(import_error("gpt_neox", neox({{"rope_theta", 300}})),
                 "rope_theta: the family gpt_neox has rotary_emb_base or rope_parameters.rope_theta");
  // rope_parameters hide the field.
  CHECK(compare_changed("gpt_neox", [](FamilyFolder& f) { f.config["rope_theta"] = 300; }) < kLogitTolerance);
  check_contains(import_error("gpt2", [](FamilyFolder& f) { f.config["max_position_embeddings"] = 24; }),
                 "max_position_embeddings: expected n_positions, 12, got 24");
}

TEST_CASE("\"gelu\" in a config of Gemma is the approximation with tanh") {
  CHECK(compare_changed("gemma", [](FamilyFolder& f) { f.config["hidden_act"] = "gelu"; }) < kLogitTolerance);
}

TEST_CASE("the facts of a source are its context, its template and its special tokens") {
  const auto read = [](const std::function<void(FamilyFolder&)>& change) {
    FamilyFolder folder("llama");
    change(folder);
    return read_pretrained_model(folder.write()).facts;
  };
  const SourceFacts facts = read([](FamilyFolder& f) {
    f.config.update({{"max_position_embeddings", 8192}, {"bos_token_id", 1}, {"pad_token_id", 13}});
    write_file(f.dir / "chat_template.jinja", std::string("{{ messages }}"));
  });
  CHECK(facts.context_length == 8192);
  CHECK(facts.start_token == 1);
  CHECK(facts.padding_token == -1);  // not below the number of tokens
  CHECK(facts.chat_template == "{{ messages }}");
  check_contains(
      message_of<CheckpointError>([&] {
        read([](FamilyFolder& f) { write_file(f.dir / "chat_template.jinja", std::string("\xFF")); });
      }),
      "chat_template.jinja: is not valid UTF-8");
  check_contains(message_of<CheckpointError>([] { read_pretrained_model("Organisation/model"); }),
                 "models of the Hugging Face hub are not downloaded");
}

TEST_CASE("a model without a predictor has tied embeddings, and a tied predictor must equal the embedding") {
  const auto copy = [](FamilyFolder& f) {
    f.tensors["lm_head.weight"] = f.tensors.at("model.embed_tokens.weight").clone();
  };
  CHECK(compare_changed("qwen2", copy) < kLogitTolerance);
  CHECK(compare_changed("qwen2", [](FamilyFolder& f) { f.config.erase("tie_word_embeddings"); }) <
        kLogitTolerance);
  check_contains(import_error("qwen2", [](FamilyFolder& f) { f.config["tie_word_embeddings"] = false; }),
                 "has no tensor \"lm_head.weight\"");
  check_contains(import_error("qwen2",
                              [&](FamilyFolder& f) {
                                copy(f);
                                f.tensors["lm_head.weight"].fill(0.5);
                              }),
                 "\"lm_head.weight\" differs from the embedding");
}

TEST_CASE("a folder with tokenizer.model has a SentencePiece tokenizer") {
  const std::string model = make_piece_model({.pieces = {"\u2581", "a", "b", "c"}});
  const auto import_with = [&](const std::string& text, const std::string& config) {
    const FamilyFolder folder("llama");
    const std::string path = folder.write();
    write_file(folder.dir / "tokenizer.model", text);
    write_file(folder.dir / "tokenizer_config.json", config);
    return read_pretrained_model(path);
  };
  std::shared_ptr<const Tokenizer> tokenizer;
  try {
    tokenizer = import_with(model, "{}").tokenizer;
  } catch (const ConfigError& error) {
    check_contains(error.what(), "install libsentencepiece-dev");
    return;
  }
  CHECK(tokenizer->name() == kSentencePieceTokenizerName);
  CHECK(tokenizer->vocabulary_size() == 13);
  CHECK(tokenizer->encode("ab") == std::vector<int32_t>{3, 4, 5});
  REQUIRE(tokenizer->start_tokens().size() == 1);
  CHECK(tokenizer->start_tokens()[0] == 1);
  CHECK(tokenizer->stop_tokens()[0] == 2);
  CHECK(import_with(model, R"({"add_bos_token": false})").tokenizer->start_tokens().empty());
  check_contains(message_of<CheckpointError>([&] { import_with(model, R"({"add_bos_token": "true"})"); }),
                 "tokenizer_config.json: add_bos_token: expected true or false, got \"true\"");
  const auto error = [&](const std::string& text) {
    return message_of<CheckpointError>([&] { import_with(text, "{}"); });
  };
  // A message of the library with a long piece is cut.
  const std::string long_piece = piece_model::piece(std::string(100'000, 'x'), 6) + model;
  CHECK(error(long_piece).size() < 500);
  check_contains(error(model.substr(0, 20)), "tokenizer.model: is not a SentencePiece model or is damaged");
  check_contains(error(make_piece_model({.pieces = {"\u2581"}, .remove_extra_whitespaces = true})),
                 "removes spaces at the start of texts");
  check_contains(error(make_piece_model({.pieces = {"a"}, .byte_fallback = true})),
                 "the tokenizer has 260 tokens, and the embedding of the model has 13 rows");
}

TEST_CASE("configs with unknown fields, values, sizes and families are refused by name") {
  const auto error = [](const std::string& key, const nlohmann::ordered_json& value) {
    return import_error("llama", [&](FamilyFolder& f) { f.config[key] = value; });
  };
  check_contains(error("model_type", "bert"),
                 "config.json: model_type: unknown family \"bert\", expected one of llama, qwen2");
  check_contains(error("model_type", 3), "config.json: model_type: expected a text, got 3");
  check_contains(error("quantization_config", {{"bits", 4}}),
                 "quantization_config: the family llama has no such field");
  check_contains(error("rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}),
                 "rope_scaling: low_freq_factor: is missing");
  check_contains(error("hidden_act", "gelu"), "hidden_act: expected \"silu\", got \"gelu\"");
  check_contains(error("num_hidden_layers", "two"),
                 "num_hidden_layers: expected an integer of at least 1, got \"two\"");
  check_contains(error("num_attention_heads", 0),
                 "num_attention_heads: expected an integer of at least 1, got 0");
  check_contains(error("num_attention_heads", 100000),
                 "model.heads: expected an integer from 1 to 4096, got integer 100000");
  check_contains(error("num_key_value_heads", 3), "kv_heads");
  check_contains(error("head_dim", 5), "head_dim");
  check_contains(error("rms_norm_eps", "x"), "rms_norm_eps: expected a number");
  check_contains(error("attention_bias", 1), "attention_bias: expected true or false, got 1");
  check_contains(error("attention_bias", true), "has no tensor \"model.layers.0.self_attn.q_proj.bias\"");
  check_contains(error("num_hidden_layers", 3), "has no tensor \"model.layers.2.input_layernorm.weight\"");
  check_contains(error("num_hidden_layers", 1), "the tensor \"model.layers.1.");
  check_contains(error("num_hidden_layers", 9000), "has more parameters than the file");
  check_contains(error("intermediate_size", 25), "has the shape (24, 16), and the config needs (25, 16)");
  check_contains(error("vocab_size", 12), "vocab_size: is 12, and the embedding has 13 rows");
  check_contains(import_error("llama", [](FamilyFolder& f) { f.config.erase("hidden_size"); }),
                 "config.json: hidden_size: is missing");
  check_contains(import_error("qwen2", [](FamilyFolder& f) { f.config["use_sliding_window"] = true; }),
                 "use_sliding_window: expected false, got true");
  check_contains(
      import_error("qwen2", [](FamilyFolder& f) { f.config["layer_types"][1] = "sliding_attention"; }),
      "layer_types: expected a list of \"full_attention\"");
  check_contains(
      import_error("gpt2", [](FamilyFolder& f) { f.config["scale_attn_by_inverse_layer_idx"] = true; }),
      "scale_attn_by_inverse_layer_idx: expected false, got true");
}

TEST_CASE("weights and tokenizers that do not fit the config are refused by name") {
  check_contains(
      import_error("llama", [](FamilyFolder& f) { f.tensors["model.extra"] = Tensor::zeros({2}); }),
      "the tensor \"model.extra\" of shape (2,) belongs to no parameter");
  check_contains(import_error("llama", [](FamilyFolder& f) { f.tensors.erase("model.norm.weight"); }),
                 "has no tensor \"model.norm.weight\"");
  check_contains(import_error("llama",
                              [](FamilyFolder& f) {
                                f.tensors["model.norm.weight"] = Tensor::zeros({16}, DType::int64);
                              }),
                 "has integers, expected floating-point numbers");
  check_contains(import_error("llama",
                              [](FamilyFolder& f) {
                                f.tensors["model.norm.weight"].fill(std::numeric_limits<double>::infinity());
                              }),
                 "non-finite");
  check_contains(import_error("llama", [](FamilyFolder& f) { f.tensors.erase("model.embed_tokens.weight"); }),
                 "has no tensor \"model.embed_tokens.weight\"");
  check_contains(import_error("llama",
                              [](FamilyFolder& f) {
                                f.tokenizer = write_tokenizer_json(make_letter_tokenizer(14), false);
                              }),
                 "the tokenizer has 14 tokens, and the embedding of the model has 13 rows");
}
