// Softmax attention with shared queries and keys, for comparison with LSH attention.
#pragma once

#include "models/attention/attention.h"

namespace tapeformer {

// Returns the built-in attention kind "shared-softmax".
AttentionKind shared_softmax_attention_kind();

}  // namespace tapeformer
