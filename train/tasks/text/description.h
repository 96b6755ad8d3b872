// The tokenizer of a language model in its checkpoints.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer.h"

namespace tapeformer {

// Convert a tokenizer to and from the JSON object TrainingState::task: its name, its number of tokens and its
// data, characters as text and a SentencePiece model in Base64. `place` is the path of state.json. Throw
// CheckpointError with the path and the entry.
std::string to_json(const Tokenizer& tokenizer);
std::shared_ptr<const Tokenizer> tokenizer_of(const std::string& task_json, const std::string& place);

}  // namespace tapeformer
