// Sampling of classes from logits.
#pragma once

#include "core/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// Writes to out (rows,) uint8 a class for each row of logits (rows, classes), at most 256 classes. The class
// is drawn from softmax by the Gumbel-max trick with elements (first + row) * classes + class of the stream.
// If `greedy` is true, it is the first class with the largest logit. Not recorded; allocates nothing. Throws
// ShapeError.
void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    bool greedy = false);

// Copies between tokens (batch,) uint8 and row `position` of columns (length, batch) uint8, which holds one
// sequence per column. The first `prefix` positions are given and are copied to `tokens`; later positions are
// copied from `tokens`. Throws ShapeError.
void advance_tokens(const Tensor& columns, int64_t position, int64_t prefix, const Tensor& tokens);

}  // namespace tapeformer
