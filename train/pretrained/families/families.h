// The declarations of the families. Internal to train/pretrained.
#pragma once

#include "train/pretrained/families/model_family.h"

namespace tapeformer {

ModelFamily make_llama_family();
ModelFamily make_qwen2_family();
ModelFamily make_qwen3_family();
ModelFamily make_gemma_family();
ModelFamily make_gpt2_family();
ModelFamily make_gpt_neox_family();

}  // namespace tapeformer
