// Language models that other programs have written.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer.h"
#include "models/autoregressive_model.h"
#include "train/checkpoint/source_facts.h"
#include "train/config/config.h"

namespace tapeformer {

struct PretrainedModel {
  Config config = {};                               // of a run; data.path is empty
  std::unique_ptr<AutoregressiveModel> model = {};  // on the CPU, in float32
  std::shared_ptr<const Tokenizer> tokenizer = {};  // with as many tokens as the model
  SourceFacts facts = {};
};

// Reads a folder of Hugging Face (config.json, safetensors, tokenizer.json or tokenizer.model) or a GGUF
// file. Throws CheckpointError if a file is missing or damaged, if the files contradict each other, or if a
// model of this family or with these settings cannot be a model of type "sequence".
PretrainedModel read_pretrained_model(const std::string& path);

}  // namespace tapeformer
