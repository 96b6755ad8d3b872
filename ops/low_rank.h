// Addition of products of low rank, which adapters of linear layers use.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// A matrix b (out, rank), whose product is added to the columns [column, column + out).
struct LowRankTerm {
  Tensor b;
  int64_t column = 0;
};

// Returns y (…, columns) with scale * low_i b_iᵀ added to the columns of each term i. low (…, sum of the
// ranks) contains the operands low_i (…, rank_i) one after another. All tensors have the same dtype, float32
// or float64. Overwrites y if no other tensor shares its memory. Throws ShapeError for mismatched shapes and
// dtypes.
Tensor add_low_rank(Tensor y, const Tensor& low, const std::vector<LowRankTerm>& terms, double scale);

}  // namespace tapeformer
