// Sampling of classes from logits.
#pragma once

#include "core/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// Restriction of draws. The logits are divided by the temperature. top_k keeps the k classes with the largest
// logits. top_p keeps, of these, the fewest most probable classes with at least this share of the probability
// (Holtzman et al. 2020, "The curious case of neural text degeneration"). Classes with equal logits are kept
// together.
struct ClassSampling {
  bool greedy = false;     // takes the first class with the largest logit
  double temperature = 1;  // above 0
  int64_t top_k = 0;       // 0: all classes
  double top_p = 1;        // above 0, at most 1

  bool is_default() const { return !greedy && temperature == 1 && top_k == 0 && top_p == 1; }
};

// Writes to out (rows,) a class for each row of logits (rows, classes). out is uint8, for at most 256
// classes, int32 or int64. The class is drawn from softmax by the Gumbel-max trick with elements (first +
// row) * classes + class of the stream. Not recorded. Throws ShapeError.
void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    const ClassSampling& sampling = {});

// Copies between tokens (batch,) uint8 and row `position` of columns (length, batch) uint8, which holds one
// sequence per column. The first `prefix` positions are given and are copied to `tokens`; later positions are
// copied from `tokens`. Throws ShapeError.
void advance_tokens(const Tensor& columns, int64_t position, int64_t prefix, const Tensor& tokens);

}  // namespace tapeformer
