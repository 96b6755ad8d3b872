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
ModelFamily make_qwen3_next_family();
ModelFamily make_qwen3_5_family();
ModelFamily make_gla_family();
ModelFamily make_delta_net_family();
ModelFamily make_gated_deltanet_family();
ModelFamily make_mamba2_family();

}  // namespace tapeformer
