#include "train/checkpoint/peft_files.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "models/layers/low_rank.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

bool has_llama_layers(const Config& config) {
  const ModelConfig& model = config.model;
  return model.has("gated_feedforward") && model.get<bool>("gated_feedforward") &&
         model.get<std::string>("norm_kind") == "rms";
}

// The name of a layer without "lora_A.weight" or "lora_B.weight".
std::string get_layer_name(const std::string& tensor) {
  return tensor.substr(0, tensor.rfind(".lora_"));
}

Json make_adapter_config(const Config& config, const std::string& base,
                         const std::set<std::string>& modules) {
  return {{"peft_type", "LORA"},
          {"task_type", "CAUSAL_LM"},
          {"base_model_name_or_path", base},
          {"r", config.lora.rank},
          {"lora_alpha", config.lora.alpha},
          {"lora_dropout", config.lora.dropout},
          {"target_modules", modules},
          {"bias", "none"},
          {"fan_in_fan_out", false},
          {"inference_mode", true}};
}

}  // namespace

std::string make_transformers_name(const std::string& layer, const Config& config) {
  static const std::map<std::string, std::string> names = {{"attention.query_projection", "self_attn.q_proj"},
                                                           {"attention.key_projection", "self_attn.k_proj"},
                                                           {"attention.value_projection", "self_attn.v_proj"},
                                                           {"attention.out_projection", "self_attn.o_proj"},
                                                           {"linear1", "mlp.gate_proj"},
                                                           {"linear3", "mlp.up_proj"},
                                                           {"linear2", "mlp.down_proj"}};
  const size_t index = layer.find('.'),
               rest = index == std::string::npos ? index : layer.find('.', index + 1);
  if (!has_llama_layers(config) || rest == std::string::npos) return layer;
  const auto found = names.find(layer.substr(rest + 1));
  return found == names.end() ? layer : "model." + layer.substr(0, rest + 1) + found->second;
}

void write_peft_files(const Checkpoint& checkpoint, const Config& config, const fs::path& folder) {
  const TrainingState state = checkpoint.read_state();
  if (!state.base) throw CheckpointError(checkpoint.folder() + ": the run has no adapters");
  checkpoint.verify_model_checksum();
  const SafetensorsFile file = checkpoint.open_model_file();
  std::map<std::string, Tensor> tensors;
  std::set<std::string> modules;
  for (const auto& [name, entry] : file.entries()) {
    const std::string layer = get_layer_name(name), other = make_transformers_name(layer, config);
    tensors["base_model.model." + other + name.substr(layer.size())] = file.read(name);
    modules.insert(other.substr(other.rfind('.') + 1));
  }
  fs::create_directories(folder);
  write_safetensors((folder / "adapter_model.safetensors").string(), tensors, {{"format", "pt"}});
  replace_file((folder / "adapter_config.json").string(),
               make_adapter_config(config, state.base->folder, modules).dump(2) + "\n");
}

}  // namespace tapeformer
