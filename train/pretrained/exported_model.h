// Models of the program in the formats of other programs. Internal to train.
#pragma once

#include <optional>
#include <string>

#include "data/text/bpe/bpe_model.h"
#include "models/autoregressive_model.h"
#include "train/checkpoint/source_facts.h"
#include "train/config/config.h"
#include "train/pretrained/families/model_family.h"
#include "train/pretrained/gguf_writer.h"

namespace tapeformer {

struct ExportOptions {
  GgufWriteType type = GgufWriteType::float32;  // of matrices; vectors are float32 in GGUF files
  // Longest text of the model; 0: the longer one of facts.context_length and data.sequence_length.
  int64_t context_length = 0;
  SourceFacts facts = {};
};

// Returns the family that can describe the model: `name`, or the first one if `name` is empty. Throws
// ConfigError with the settings that the family, or the one with the fewest such settings, does not have.
const ModelFamily& choose_model_family(const Config& config, const std::string& name);

// Returns the tokenizer as a BPE tokenizer with the same tokens, if it is one or if its tokens are bytes.
std::optional<BpeModel> convert_to_bpe(const Tokenizer* tokenizer);

// Throws ConfigError if a folder of Hugging Face cannot have the type.
void check_folder_type(GgufWriteType type);

// Writes config.json, generation_config.json, model.safetensors and the files of the tokenizer, which may be
// null, into a folder.
// Throws ConfigError if the family or options.type cannot describe the weights.
void write_huggingface_folder(const std::string& folder, const ModelFamily& family, const Config& config,
                              const AutoregressiveModel& model, const Tokenizer* tokenizer,
                              ExportOptions options);

// Writes a GGUF file. Throws ConfigError as write_huggingface_folder(), and if convert_to_bpe() returns
// nothing.
void write_gguf_model(const std::string& path, const ModelFamily& family, const Config& config,
                      const AutoregressiveModel& model, const Tokenizer* tokenizer,
                      const ExportOptions& options);

}  // namespace tapeformer
