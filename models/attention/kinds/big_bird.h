// The pattern of Big Bird, which contains random blocks of keys.
#pragma once

#include "models/attention/sparse_pattern.h"

namespace tapeformer {

// Returns the pattern of "Big Bird: Transformers for Longer Sequences" (Zaheer et al. 2020, section 2) for
// the options of the attention kind "big-bird". Throws OptionError for invalid options.
PatternFunction make_big_bird_pattern(const OptionValues& options);
// Throws OptionError if the options are invalid for sequences of `length` tokens.
void check_big_bird_length(const OptionValues& options, int64_t length);

}  // namespace tapeformer
