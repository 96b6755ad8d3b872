// The splits of byte-level BPE in a tokenizer.json. Internal to tokenizer_json.cpp.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/text/bpe/bpe_model.h"

namespace tapeformer {

// Returns the split of the entry "pre_tokenizer". Throws DataError, which begins with `source`, for any other
// entry.
BpeSplit read_bpe_split(const nlohmann::json& pre_tokenizer, const std::string& source);

// Returns the entry "pre_tokenizer" of a split.
nlohmann::json write_bpe_split(BpeSplit split);

}  // namespace tapeformer
