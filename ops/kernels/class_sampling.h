// Classes drawn from rows of logits (ops/class_sampling.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/backends.h"
#include "core/rng.h"

namespace tapeformer {

// What the largest of a row is looked for: the logit with Gumbel noise, or without noise. In double on both
// machines, so that they draw the same classes.
struct ClassScore {
  RandomStream stream;
  int64_t first, classes;
  bool greedy;

  template <class T>
  TAPEFORMER_HOST_DEVICE double of(int64_t row, int64_t c, T logit) const {
    const auto score = static_cast<double>(logit);
    if (greedy) return score;
    return score - std::log(-std::log(stream.uniform(static_cast<uint64_t>((first + row) * classes + c))));
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // logits (rows, score.classes); out (rows,): the first class of the largest score, 0 where none is a
    // number
    template <class T>
    void sample_classes(Backend, int64_t rows, const T* logits, const ClassScore& score, uint8_t* out);

    // Token number `position`, which on a device is a StepNumber, of sequences that are kept as columns
    // (length, batch): the first `given` are brought to tokens (batch,), the others come from there.
    void advance_tokens(Backend, int64_t batch, int64_t position, int64_t given, uint8_t* columns,
                        uint8_t* tokens);

)

}  // namespace tapeformer
