#include "train/pretrained/families/find_family.h"

#include <algorithm>

#include "core/base/errors.h"
#include "core/system/printable.h"
#include "train/pretrained/families/families.h"

namespace tapeformer {
namespace {

const ModelFamily& find_by(std::string ModelFamily::*name, const std::string& value,
                           const std::string& source) {
  std::string names;
  for (const ModelFamily& family : list_model_families()) {
    if (family.*name == value && !value.empty()) return family;
    if (!(family.*name).empty()) names += (names.empty() ? "" : ", ") + family.*name;
  }
  throw CheckpointError(concat_text(source, ": unknown family \"", escape_line(value.substr(0, 60)),
                                    "\", expected one of ", names));
}

}  // namespace

const std::vector<ModelFamily>& list_model_families() {
  static const auto* const list = new std::vector<ModelFamily>{
      make_llama_family(),    make_qwen2_family(),     make_qwen3_family(),          make_gpt2_family(),
      make_gpt_neox_family(), make_gemma_family(),     make_qwen3_5_family(),        make_qwen3_next_family(),
      make_gla_family(),      make_delta_net_family(), make_gated_deltanet_family(), make_mamba2_family()};
  return *list;
}

const ModelFamily& find_model_family(const std::string& name, const std::string& source) {
  return find_by(&ModelFamily::name, name, source + ": model_type");
}

const ModelFamily& find_gguf_family(const std::string& architecture, const std::string& source) {
  return find_by(&ModelFamily::gguf, architecture, source + ": general.architecture");
}

const std::vector<std::string>& list_ignored_fields() {
  static const auto* const list = new std::vector<std::string>{"architectures",
                                                               "attention_dropout",
                                                               "_attn_implementation",
                                                               "_attn_implementation_autoset",
                                                               "bos_token_id",
                                                               "chunk_size_feed_forward",
                                                               "dtype",
                                                               "eos_token_id",
                                                               "id2label",
                                                               "initializer_range",
                                                               "is_encoder_decoder",
                                                               "is_decoder",
                                                               "label2id",
                                                               "model_type",
                                                               "_name_or_path",
                                                               "_model_name_or_path",
                                                               "output_attentions",
                                                               "output_hidden_states",
                                                               "pad_token_id",
                                                               "problem_type",
                                                               "return_dict",
                                                               "task_specific_params",
                                                               "tokenizer_class",
                                                               "torch_dtype",
                                                               "transformers.js_config",
                                                               "transformers_version",
                                                               "unk_token_id",
                                                               "use_cache"};
  return *list;
}

}  // namespace tapeformer
