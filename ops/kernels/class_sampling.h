// Sampling of classes from rows of logits (ops/class_sampling.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/backends.h"
#include "core/rng.h"

namespace tapeformer {

// Score of a class: the logit plus Gumbel noise, or only the logit if `greedy` is true. The class with the
// maximum score is drawn. Both backends compute the score in double, so that they draw the same classes.
struct ClassScore {
  RandomStream stream;
  int64_t first, classes;
  bool greedy;

  template <class T>
  TAPEFORMER_HOST_DEVICE double noisy_logit(int64_t row, int64_t c, T logit) const {
    const auto score = static_cast<double>(logit);
    if (greedy) return score;
    return score - std::log(-std::log(stream.uniform(static_cast<uint64_t>((first + row) * classes + c))));
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Writes out (rows,): the first class with the largest score, or 0 if all scores are NaN. logits (rows,
    // score.classes).
    template <class T>
    void sample_classes(Backend, int64_t rows, const T* logits, const ClassScore& score, uint8_t* out);

    // Copies row `position` of columns (length, batch) to tokens (batch,) for the first `prefix` positions,
    // and tokens to the row for later positions. On CUDA the position is a GraphStep.
    void advance_tokens(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                        uint8_t* tokens);

)

}  // namespace tapeformer
