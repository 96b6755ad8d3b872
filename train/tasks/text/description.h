// Functions that store the tokenizer of a language model in checkpoints, and load the tokenizer from
// checkpoints.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer.h"

namespace tapeformer {

// The next two functions convert a tokenizer to and from the JSON object TrainingState::task_json. The object
// contains the name of the tokenizer, the size of its vocabulary and its data. Characters are stored as text,
// and a SentencePiece model in Base64. `path` is the path of state.json, for messages. parse_tokenizer()
// throws CheckpointError with the path and the entry.
std::string to_json(const Tokenizer& tokenizer);
std::shared_ptr<const Tokenizer> parse_tokenizer(const std::string& task_json, const std::string& path);

}  // namespace tapeformer
