// Models with scaled rotary positions, or with layers whose states have a constant size: golden values of the
// packages transformers and flash-linear-attention (hybrids.safetensors), round trips, and wrong orders that
// the comparison must find.
#include <doctest/doctest.h>

#include <functional>

#include "models/decoder.h"
#include "ops/view.h"
#include "tests/support/random.h"
#include "tests/train/pretrained/family_folder.h"
#include "train/pretrained/exported_model.h"
#include "train/pretrained/pretrained_model.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const std::string kHybrids = "hybrids";
constexpr double kHybridTolerance = 2e-5;

std::vector<std::string> list_hybrid_cases() {
  std::vector<std::string> names;
  const SafetensorsFile file = open_golden_file(kHybrids);
  for (const auto& [name, config] : file.metadata()) names.push_back(name);
  return names;
}

double compare_hybrid(const std::string& path, const std::string& name) {
  const SafetensorsFile file = open_golden_file(kHybrids);
  const PretrainedModel imported = read_pretrained_model(path);
  const NoGradScope no_grad;
  return max_difference(imported.model->forward(file.read(name + ".tokens"), {}).to(DType::float64),
                        file.read(name + ".logits"));
}

using HybridChange = std::function<void(FamilyFolder&)>;

double compare_changed_hybrid(const std::string& name, const HybridChange& change) {
  FamilyFolder folder(name, kHybrids);
  change(folder);
  return compare_hybrid(folder.write(), name);
}

std::string hybrid_error(const std::string& name, const HybridChange& change) {
  FamilyFolder folder(name, kHybrids);
  change(folder);
  const std::string path = folder.write();
  return message_of<CheckpointError>([&] { read_pretrained_model(path); });
}

std::string hybrid_field_error(const std::string& name, const std::string& key,
                               const nlohmann::ordered_json& value) {
  return hybrid_error(name, [&](FamilyFolder& f) { f.config[key] = value; });
}

// Checks that the comparison finds a fault.
void check_finds(const std::string& name, const HybridChange& change) {
  const double difference = compare_changed_hybrid(name, change);
  CHECK_MESSAGE(difference > 1e-3, name, ": ", difference);
}

// Puts the first blocks of `rows` rows in another order.
void reorder_blocks(Tensor& x, int64_t rows, const std::vector<int64_t>& order) {
  std::vector<Tensor> parts;
  for (const int64_t i : order) parts.push_back(slice(x, 0, i * rows, (i + 1) * rows));
  const int64_t used = rows * static_cast<int64_t>(order.size());
  if (used < x.size(0)) parts.push_back(slice(x, 0, used, x.size(0)));
  x = concat(parts, 0).clone();
}

void check_has(const std::string& text, const std::string& part) {
  CHECK_MESSAGE(contains(text, part), "got: ", text, "\nexpected: ", part);
}

}  // namespace

TEST_CASE("imported hybrid models have the logits of their packages, also token by token") {
  const SafetensorsFile file = open_golden_file(kHybrids);
  for (const std::string& name : list_hybrid_cases()) {
    CAPTURE(name);
    const FamilyFolder folder(name, kHybrids);
    const PretrainedModel imported = read_pretrained_model(folder.write());
    const Tensor tokens = file.read(name + ".tokens"), logits = file.read(name + ".logits");
    const NoGradScope no_grad;
    CHECK(max_difference(imported.model->forward(tokens, {}).to(DType::float64), logits) < kHybridTolerance);
    Decoder decoder(*imported.model, 2);
    const auto compare_step = [&](int64_t t) {
      const Tensor& step = decoder.step(slice(tokens, 1, t, t + 1).clone().view({2}).to(DType::int64));
      CHECK(max_difference(step.to(DType::float64), slice(logits, 1, t, t + 1).clone().view(step.shape())) <
            kHybridTolerance);
    };
    for (int64_t t = 0; t < tokens.size(1); ++t) compare_step(t);
    decoder.reset();
    constexpr int64_t kPrefix = 9;
    for (const int64_t t : {int64_t{0}, kPrefix})
      decoder.read(slice(tokens, 1, t, t + kPrefix).clone().to(DType::int64));
    for (int64_t t = 2 * kPrefix; t < tokens.size(1); ++t) compare_step(t);
  }
}

TEST_CASE("exported hybrid models have the tensors of the original files, bit for bit") {
  for (const std::string& name : list_hybrid_cases()) {
    CAPTURE(name);
    const FamilyFolder folder(name, kHybrids);
    const PretrainedModel imported = read_pretrained_model(folder.write());
    const auto type = folder.config["model_type"].get<std::string>();
    const ModelFamily& family = choose_model_family(imported.config, type);
    CHECK(family.name == type);
    const TempDir out;
    write_huggingface_folder(out.path().string(), family, imported.config, *imported.model,
                             imported.tokenizer.get(), {});
    CHECK(compare_hybrid(out.path().string(), name) < kHybridTolerance);
    const SafetensorsFile written((out / "model.safetensors").string());
    CHECK(written.entries().size() == folder.tensors.size());
    for (const auto& [bound_name, tensor] : folder.tensors) {
      const std::string& tensor_name = bound_name;
      CAPTURE(tensor_name);
      REQUIRE(written.entries().contains(tensor_name));
      CHECK(written.entries().at(tensor_name).shape == tensor.shape());
      CHECK(max_difference(written.read(tensor_name), tensor) == 0);
    }
  }
}

TEST_CASE("the comparison of hybrid models finds wrong orders and numbers of Qwen") {
  const std::string delta = "model.layers.0.linear_attn.", full = "model.layers.3.self_attn.";
  for (const std::string name : {"qwen3_next", "qwen3_5_text"}) {
    // Queries and gates as halves, and not by head.
    check_finds(name, [&](FamilyFolder& f) {
      reorder_blocks(f.tensors.at(full + "q_proj.weight"), 8, {0, 2, 4, 6, 1, 3, 5, 7});
    });
    check_finds(name, [&](FamilyFolder& f) { f.config["rms_norm_eps"] = 0.1; });
    check_finds(name, [](FamilyFolder& f) { f.config["rope_parameters"]["partial_rotary_factor"] = 0.25; });
    check_finds(name, [](FamilyFolder& f) { f.config["rope_parameters"]["rope_theta"] = 1e4; });
    // Heads of values in the order of repeated keys.
    check_finds(name, [&](FamilyFolder& f) {
      for (const char* part : {"A_log", "dt_bias"})
        reorder_blocks(f.tensors.at(delta + part), 1, {0, 2, 1, 3});
    });
    check_finds(name, [&](FamilyFolder& f) {
      std::swap(f.tensors.at(delta + "A_log"), f.tensors.at(delta + "dt_bias"));
    });
  }
  const auto check_reordered = [&](const std::string& name, const std::string& part, int64_t rows,
                                   const std::vector<int64_t>& order) {
    check_finds(name, [&](FamilyFolder& f) { reorder_blocks(f.tensors.at(delta + part), rows, order); });
  };
  check_reordered("qwen3_5_text", "in_proj_qkv.weight", 12, {1, 0});  // the keys before the queries
  check_reordered("qwen3_next", "in_proj_qkvz.weight", 6, {1, 0});
  check_reordered("qwen3_next", "in_proj_ba.weight", 2, {1, 0, 3, 2});
  check_reordered("qwen3_5_text", "in_proj_z.weight", 5, {0, 2, 1, 3});
  check_finds("qwen3_5_text", [&](FamilyFolder& f) {
    std::swap(f.tensors.at(delta + "in_proj_a.weight"), f.tensors.at(delta + "in_proj_b.weight"));
  });
}

TEST_CASE("the comparison of hybrid models finds wrong orders and numbers of other families") {
  const std::string attention = "model.layers.0.attn.", mixer = "backbone.layers.0.mixer.";
  const auto check_swapped = [&](const std::string& name, const std::string& a, const std::string& b) {
    check_finds(name, [&](FamilyFolder& f) { std::swap(f.tensors.at(a), f.tensors.at(b)); });
  };
  check_finds("gla", [&](FamilyFolder& f) {
    reorder_blocks(f.tensors.at(attention + "gk_proj.1.bias"), 4, {1, 0});
  });
  for (const std::string name : {"gla", "delta_net", "gated_deltanet"}) {
    check_finds(name, [&](FamilyFolder& f) { f.config["norm_eps"] = 0.1; });
    check_swapped(name, attention + "q_proj.weight", attention + "k_proj.weight");
  }
  check_finds("delta_net", [](FamilyFolder& f) { f.config["allow_neg_eigval"] = false; });
  check_swapped("gated_deltanet", attention + "a_proj.weight", attention + "b_proj.weight");
  for (const std::string name : {"mamba2", "mamba2-groups"}) {
    check_finds(name, [&](FamilyFolder& f) { f.config["layer_norm_epsilon"] = 0.1; });
    check_swapped(name, mixer + "D", mixer + "A_log");
    // The values before the gates.
    check_finds(name, [&](FamilyFolder& f) {
      reorder_blocks(f.tensors.at(mixer + "in_proj.weight"), 32, {1, 0});
    });
  }
  for (const std::string name : {"linear", "llama3", "yarn"})
    check_finds(name, [](FamilyFolder& f) { f.config["rope_parameters"] = {{"rope_theta", 100.0}}; });
  const auto check_rotary = [&](const std::string& name, const std::string& key,
                                const nlohmann::ordered_json& value) {
    check_finds(name, [&](FamilyFolder& f) { f.config["rope_parameters"][key] = value; });
  };
  check_rotary("llama3", "original_max_position_embeddings", 64);
  check_rotary("yarn", "beta_slow", 2);
  check_rotary("yarn-amplitude", "attention_factor", nullptr);
}

TEST_CASE("rotary positions of earlier versions of transformers have the same meaning") {
  for (const std::string name : {"linear", "llama3", "yarn"})
    CHECK(compare_changed_hybrid(name, [](FamilyFolder& f) {
            nlohmann::ordered_json scaling = f.config["rope_parameters"];
            f.config["rope_theta"] = scaling["rope_theta"];
            scaling.erase("rope_theta");
            scaling["type"] = scaling["rope_type"];
            scaling.erase("rope_type");
            f.config["rope_scaling"] = scaling;
            f.config.erase("rope_parameters");
          }) < kHybridTolerance);
}

TEST_CASE("Infinity in a config is the object that transformers writes in its place") {
  const std::string object = R"({"__float__":"Infinity"})";
  FamilyFolder folder("mamba2", kHybrids);
  const std::string path = folder.write(), text = folder.config.dump();
  const size_t at = text.find(object);
  REQUIRE(at != std::string::npos);
  write_file(folder.dir / "config.json", text.substr(0, at) + "Infinity" + text.substr(at + object.size()));
  CHECK(compare_hybrid(path, "mamba2") < kHybridTolerance);
}

TEST_CASE("norms of GLA without fused functions have another name") {
  CHECK(compare_changed_hybrid("gla", [](FamilyFolder& f) {
          for (const std::string layer : {"0", "1"}) {
            const std::string start = "model.layers." + layer + ".attn.g_norm";
            f.tensors[start + ".weight"] = f.tensors.at(start + "_swish_gate.weight");
            f.tensors.erase(start + "_swish_gate.weight");
          }
        }) < kHybridTolerance);
}

TEST_CASE("the language model in a model of pictures is read without the rest") {
  CHECK(compare_changed_hybrid("qwen3_5_text", [](FamilyFolder& f) {
          nlohmann::ordered_json outer{
              {"model_type", "qwen3_5"}, {"vision_config", {{"depth", 2}}}, {"tie_word_embeddings", false}};
          f.config.erase("tie_word_embeddings");
          f.config["rope_parameters"]["mrope_section"] = {1, 1, 0};
          outer["text_config"] = f.config;
          f.config = outer;
          std::map<std::string, Tensor> renamed{{"model.visual.blocks.0.norm1.weight", Tensor::zeros({2})},
                                                {"mtp.norm.weight", Tensor::zeros({2})}};
          const std::string prefix = "model.";
          for (const auto& [name, tensor] : f.tensors)
            renamed[name.starts_with(prefix) ? "model.language_model." + name.substr(prefix.size()) : name] =
                tensor;
          f.tensors = renamed;
        }) < kHybridTolerance);
}

TEST_CASE("fields of hybrid models that the program does not implement are refused by name") {
  check_has(hybrid_field_error("qwen3_next", "num_experts", 4), "num_experts: layer 0 has 4 experts");
  check_has(hybrid_error("qwen3_next", [](FamilyFolder& f) { f.config.erase("num_experts"); }),
            "num_experts: layer 0 has 512 experts");
  CHECK(compare_changed_hybrid("qwen3_next", [](FamilyFolder& f) {
          f.config["num_experts"] = 4;
          f.config["mlp_only_layers"] = {0, 1, 2, 3};
        }) < kHybridTolerance);
  CHECK(compare_changed_hybrid("qwen3_5_text", [](FamilyFolder& f) { f.config.erase("layer_types"); }) <
        kHybridTolerance);
  check_has(hybrid_field_error("qwen3_5_text", "layer_types", {"full_attention"}),
            "layer_types: expected a list of 4");
  check_has(
      hybrid_error("qwen3_5_text", [](FamilyFolder& f) { f.config["layer_types"][1] = "sliding_attention"; }),
      "layer_types: expected a list of \"linear_attention\" and \"full_attention\"");
  check_has(hybrid_field_error("qwen3_5_text", "attention_bias", true),
            "attention_bias: expected false, got true");
  check_has(hybrid_field_error("qwen3_5_text", "linear_num_key_heads", 3),
            "key_heads: expected a divisor of");
  check_has(hybrid_field_error("qwen3_5_text", "linear_value_head_dim", 7), "has the shape");
  check_has(hybrid_field_error("delta_net", "use_beta", false), "use_beta: expected true, got false");
  check_has(hybrid_field_error("delta_net", "qk_norm", "sum"), "qk_norm: expected \"l2\", got \"sum\"");
  check_has(hybrid_field_error("mamba2", "use_bias", true), "use_bias: expected false, got true");
  check_has(hybrid_field_error("mamba2", "expand", 3), "expand: 3 times hidden_size 16 is not num_heads 4");
  check_has(hybrid_field_error("mamba2", "time_step_limit", {0.0, 0.5}),
            "time_step_limit: expected 0 and infinity");
  check_has(hybrid_field_error("gla", "num_kv_heads", 1), "num_kv_heads: expected as many as num_heads");
  check_has(hybrid_field_error("gla", "feature_map", "relu"), "feature_map: expected null, got \"relu\"");
  check_has(hybrid_field_error("gla", "expand_k", 0.3), "expand_k: 0.3 times 16 is no width of 2 heads");
  check_has(hybrid_field_error("gated_deltanet", "attnres_block_size", 2),
            "attnres_block_size: expected null");
  check_has(
      hybrid_field_error("gated_deltanet", "attn", {{"layers", {0}}, {"num_heads", 2}, {"window_size", 8}}),
      "attn: window_size: expected no value, got 8");
  check_has(hybrid_field_error("gated_deltanet", "attn", {{"layers", {5}}, {"num_heads", 2}}),
            "attn: layers: expected numbers from 0 to 1, got 5");
  const auto rotary_error = [](const std::string& key, const nlohmann::ordered_json& value) {
    return hybrid_error("llama3", [&](FamilyFolder& f) { f.config["rope_parameters"][key] = value; });
  };
  check_has(rotary_error("rope_type", "longrope"), "rope_parameters.rope_type: expected");
  check_has(rotary_error("low_freq_factor", nullptr), "rope_parameters: low_freq_factor: is missing");
  check_has(rotary_error("high_freq_factor", 0.5), "rotary_fast");
  check_has(rotary_error("beta_fast", 3),
            "rope_parameters.beta_fast: the rotary positions \"llama3\" have no such field");
  check_has(rotary_error("original_max_position_embeddings", 1.5),
            "expected an integer of at least 1, got 1.5");
  check_has(rotary_error("factor", 0.0), "rotary_factor");
}
