// Functions that store the tokenizer of a language model in checkpoints, and load the tokenizer from
// checkpoints.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer.h"

namespace tapeformer {

// Returns the text of a JSON object with the name, the vocabulary size and the serialized data of the
// tokenizer.
std::string to_json(const Tokenizer& tokenizer);
// Returns the tokenizer from `task_json`, the text that to_json() returned. Throws CheckpointError if an
// entry is missing or invalid. The error message contains the name of the entry and `path`, the path of
// state.json.
std::shared_ptr<const Tokenizer> parse_tokenizer(const std::string& task_json, const std::string& path,
                                                 UnknownCharacters unknown = UnknownCharacters::refuse);

}  // namespace tapeformer
