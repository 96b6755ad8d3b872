// The division of texts into pieces, before the merges of byte-level BPE. Internal to the tokenizer "bpe".
// The classes of characters are those of utf8proc.
#pragma once

#include <cstddef>
#include <string_view>

#include "data/text/bpe/bpe_model.h"

namespace tapeformer {

// Returns the end of the piece that begins at `at`, which must be the end of the previous piece or 0. `text`
// is valid UTF-8.
size_t find_bpe_piece_end(std::string_view text, size_t at, BpeSplit split);

// Returns whether the character before `at` is not a white space and the character at `at` is a letter, after
// the line end at `at` - 1. All expressions divide a text there, with the same pieces before and after.
bool is_bpe_boundary(std::string_view text, size_t at);

}  // namespace tapeformer
