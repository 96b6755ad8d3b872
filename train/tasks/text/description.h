// Functions that store the tokenizer of a language model in checkpoints, and load the tokenizer from
// checkpoints.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer.h"

namespace tapeformer {

// Returns a JSON object with the name of the tokenizer, the size of its vocabulary and its data.
std::string to_json(const Tokenizer& tokenizer);
// Returns the tokenizer from the result of to_json(). Throws CheckpointError if an entry is missing or
// invalid. The message contains the entry and `path`, the path of state.json.
std::shared_ptr<const Tokenizer> parse_tokenizer(const std::string& task_json, const std::string& path);

}  // namespace tapeformer
