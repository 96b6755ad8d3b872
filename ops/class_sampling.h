// Sampling of classes from logits.
#pragma once

#include "core/random/rng.h"
#include "core/tensor.h"

namespace tapeformer {

// Options of sampling. The logits are divided by the temperature. top_k keeps the k classes with the largest
// logits. Of these classes, top_p keeps the smallest set of most probable classes whose total probability is
// at least top_p (Holtzman et al. 2020, "The curious case of neural text degeneration"). Classes with equal
// logits are either all kept or all removed.
struct ClassSamplingOptions {
  bool greedy = false;     // whether to take the first class with the largest logit instead of sampling
  double temperature = 1;  // must be greater than 0
  int64_t top_k = 0;       // number of classes to sample from; 0: all classes
  double top_p = 1;        // greater than 0, at most 1

  bool is_default() const { return !greedy && temperature == 1 && top_k == 0 && top_p == 1; }
};

// Selects a class for each row of `logits` (rows, classes), and writes the classes to `out` (rows,). The
// dtype of `out` is int32 or int64, or uint8 if there are at most 256 classes. With the default options, each
// class is drawn from softmax(logits) by the Gumbel-max trick. Row i of `logits` uses the random numbers that
// `stream` has for the row index first + i. The call is not recorded on the tape. Throws ShapeError for
// mismatched shapes and dtypes and for invalid options.
void sample_classes(const Tensor& logits, const RandomStream& stream, int64_t first, const Tensor& out,
                    const ClassSamplingOptions& sampling = {});

// Copies the tokens of a decoding step between `columns` and `tokens`. `columns` (length, batch) has the
// dtype uint8 and contains one sequence per column. `tokens` (batch,) has the dtype uint8. If position <
// prefix, copies row `position` of `columns` to `tokens`. Otherwise, copies `tokens` to row `position`.
// Throws ShapeError if the shapes do not match or `position` is out of range.
void copy_tokens_at_position(const Tensor& columns, int64_t position, int64_t prefix, const Tensor& tokens);

}  // namespace tapeformer
