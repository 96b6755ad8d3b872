// Sampling of classes from rows of logits (ops/class_sampling.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/backends.h"
#include "core/rng.h"

namespace tapeformer {

// Scores of classes for sampling with the Gumbel-max trick: the class with the maximum score is drawn. A
// score is logit * inverse_temperature plus Gumbel noise, or -infinity for classes that top_k or top_p
// exclude. If `greedy` is true, the score is the logit. Both backends compute scores in double, so that they
// draw the same classes.
struct ClassScore {
  RandomStream stream;
  int64_t first;  // row r of the logits uses the random numbers of row first + r
  int64_t classes;
  bool greedy;
  double inverse_temperature;
  int64_t top_k;  // number of classes to sample from; 0: all classes
  double top_p;

  bool restricts() const { return !greedy && (top_k > 0 || top_p < 1); }

  // Returns the score of class c of a row from its logit, or -infinity if the logit is below `smallest`.
  template <class T>
  TAPEFORMER_HOST_DEVICE double noisy_logit(int64_t row, int64_t c, T logit, double smallest) const {
    const auto score = static_cast<double>(logit);
    if (greedy) return score;
    if (score < smallest) return -INFINITY;
    const double u = stream.uniform(static_cast<uint64_t>((first + row) * classes + c));
    return score * inverse_temperature - std::log(-std::log(u));
  }
  // Returns the weight of a class in the softmax of a row whose largest logit is `largest`.
  TAPEFORMER_HOST_DEVICE double weight(double logit, double largest) const {
    return std::exp((logit - largest) * inverse_temperature);
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Writes to out (rows,) the first class with the largest score, or 0 if all scores are NaN. `logits` is
    // (rows, score.classes). Index is uint8, int32 or int64.
    template <class T, class Index>
    void sample_classes(Backend, int64_t rows, const T* logits, const ClassScore& score, Index* out);

    // For the first `prefix` positions, copies row `position` of columns (length, batch) to tokens (batch,).
    // For later positions, copies tokens to the row. On CUDA, each replay of a graph advances the position
    // (GraphStep).
    void advance_tokens(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                        uint8_t* tokens);

)

}  // namespace tapeformer
