// Kernels that sample a class for each row of logits (ops/class_sampling.h).
#pragma once

#include <cmath>
#include <cstdint>

#include "core/base/backends.h"
#include "core/random/rng.h"

namespace tapeformer {

// Computes scores for sampling with the Gumbel-max trick, which selects the class with the maximum score. The
// score of a class is logit * inverse_temperature plus Gumbel noise, or -infinity if top_k or top_p excludes
// the class. If `greedy` is true, the score is the logit. Both backends compute scores in double, so that
// they sample the same classes.
struct ClassScorer {
  RandomStream stream;
  int64_t row_offset;  // class c of row r uses element (row_offset + r) * classes + c of the stream
  int64_t classes;
  bool greedy;
  double inverse_temperature;
  int64_t top_k;  // number of classes to sample from; 0: all classes
  double top_p;

  bool is_restricted() const { return !greedy && (top_k > 0 || top_p < 1); }

  // Returns the score of class c of a row. `min_logit` is the smallest logit that top_k and top_p allow.
  template <class T>
  TAPEFORMER_HOST_DEVICE double compute_score(int64_t row, int64_t c, T logit, double min_logit) const {
    const auto score = static_cast<double>(logit);
    if (greedy) return score;
    if (score < min_logit) return -INFINITY;
    const double u = stream.uniform(static_cast<uint64_t>((row_offset + row) * classes + c));
    return score * inverse_temperature - std::log(-std::log(u));
  }
  // Returns the numerator of the softmax for a class. `max_logit` is the largest logit of the row.
  TAPEFORMER_HOST_DEVICE double compute_softmax_weight(double logit, double max_logit) const {
    return std::exp((logit - max_logit) * inverse_temperature);
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Writes the class with the largest score of each row to out (rows,). If several classes have this score,
    // the first one is written. If all scores are NaN, 0 is written. `logits` is (rows, score.classes). Index
    // is uint8, int32 or int64.
    template <class T, class Index>
    void sample_classes(Backend, int64_t rows, const T* logits, const ClassScorer& score, Index* out);

    // Copies row `position` of `columns` to `tokens` if position < prefix_length, and copies `tokens` to row
    // `position` of `columns` otherwise. Each column of `columns` (length, batch) is a sequence, and `tokens`
    // (batch,) is the input of the next decoding step. On CUDA, each replay of a graph advances the position
    // (GraphStep).
    void copy_tokens_at_position(Backend, int64_t batch, int64_t position, int64_t prefix_length,
                                 uint8_t* columns, uint8_t* tokens);

)

}  // namespace tapeformer
