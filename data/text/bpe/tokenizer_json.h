// Files of the package "tokenizers" (tokenizer.json) for byte-level BPE.
#pragma once

#include <string>

#include "data/text/bpe/bpe_model.h"

namespace tapeformer {

inline constexpr size_t kMaxTokenizerJsonBytes = size_t{1} << 26;

// Returns the model in a tokenizer.json. Its entries "truncation" and "padding" belong to calls of the
// package and are ignored. Stop tokens are those of find_bpe_stop_tokens(), unless the file has the entry
// "tapeformer" of write_tokenizer_json(). Throws DataError, which begins with `source`, if the text is
// damaged, and if it has parts that make_bpe_tokenizer() does not implement: another model than byte-level
// BPE, an unknown regular expression, a normaliser other than NFC. The message names the part.
BpeModel parse_tokenizer_json(const std::string& text, const std::string& source);

// Returns the text of a tokenizer.json. If `has_own_entry` is true, adds an entry "tapeformer" with the stop
// tokens and the number of tokens, which the package refuses.
std::string write_tokenizer_json(const BpeModel& model, bool has_own_entry);

}  // namespace tapeformer
