// Drawing classes from logits.
#pragma once

#include "core/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// out (rows,) uint8: for each row of logits (rows, classes), at most 256 of them, a class drawn from softmax,
// by the Gumbel-max trick with elements (first + row) * classes + class of the stream; or, when greedy, the
// first of the most probable ones. Not recorded; allocates nothing. Errors: ShapeError.
void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    bool greedy = false);

// The token after a draw, tokens (batch,) uint8, of sequences that are kept as columns (length, batch) uint8:
// the first `given` are there and are brought to `tokens`; later ones go from there to the columns. Errors:
// ShapeError.
void advance_tokens(const Tensor& columns, int64_t position, int64_t given, const Tensor& tokens);

}  // namespace tapeformer
