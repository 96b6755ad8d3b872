// Tokenizers of pretrained models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/text/bpe/bpe_model.h"
#include "train/pretrained/gguf_file.h"
#include "train/pretrained/huggingface_folder.h"

namespace tapeformer {

// Returns the byte-level BPE tokenizer in the metadata of a GGUF file. Texts are normalised to NFC where the
// tokenizer.json of the model does so (Qwen), although GGUF files do not say this. Throws CheckpointError for
// tokenizers of other kinds, and if keys are missing or invalid.
BpeModel read_gguf_tokenizer(const GgufFile& file);

// Returns the tokenizer in tokenizer.json. The stop tokens are those of the key eos_token_id in
// generation_config.json or config.json, if there are any. Throws CheckpointError.
BpeModel read_huggingface_tokenizer(const HuggingFaceFolder& folder);

// Returns whether the folder has a SentencePiece model, tokenizer.model.
bool has_piece_model(const HuggingFaceFolder& folder);
// Returns the SentencePiece tokenizer in tokenizer.model, with unused tokens up to the number of rows of the
// embedding. Texts begin with a start token unless tokenizer_config.json has add_bos_token = false. The stop
// tokens are those of read_huggingface_tokenizer(), or the end token of the model. Throws CheckpointError for
// damaged files, for more tokens than rows, and for models whose spaces the program does not treat so.
std::shared_ptr<const Tokenizer> read_piece_model(const HuggingFaceFolder& folder, int64_t rows);

// Returns the metadata of a GGUF file with the tokenizer, without the number of the start token. Unused
// tokens have the text "[PAD" and their number.
std::vector<std::pair<std::string, GgufValue>> write_gguf_tokenizer(const BpeModel& model);

// Adds unused tokens, so that the model has as many tokens as an embedding has rows. Throws CheckpointError,
// which begins with `source`, if there are more tokens than rows.
void fit_bpe_vocabulary(BpeModel& model, int64_t rows, const std::string& source);

}  // namespace tapeformer
