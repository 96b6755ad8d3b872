// CTC decoding: best path (Graves et al. 2006, section 3.2) and prefix beam search (Graves 2012, "Sequence
// transduction with recurrent neural networks"; Hannun et al. 2014, "First-pass large vocabulary continuous
// speech recognition using bi-directional recurrent DNNs").
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

using CtcLabels = std::vector<int64_t>;

// Returns the labels of the best path of each utterance: the most probable class of every frame, with
// repeated classes merged and blanks removed. `logits` is (batch, frames, classes) floating; `lengths` is
// (batch,) int64 with values in [0, frames]. Ties go to the lowest class. Throws ShapeError for mismatched
// shapes. Throws DivergenceError if a logit is NaN or +inf, or if all logits of a frame are -inf.
std::vector<CtcLabels> ctc_greedy_decode(const Tensor& logits, const Tensor& lengths, int64_t blank = 0);

struct CtcBeamOptions {
  int64_t blank = 0;
  int64_t beam_size = 16;  // number of prefixes kept after each frame
  // Bigram log-probabilities, (classes, classes) float64. Element (i, j) is the log-probability of label j
  // after label i. Row `blank` contains the log-probabilities of the first label. If the tensor is undefined,
  // no bigrams are used.
  Tensor bigram_log_probabilities = {};
  double bigram_weight = 1;  // factor of the bigram log-probabilities
  double label_bonus = 0;    // added to the score for every label, because bigrams favour short results
};

struct CtcHypothesis {
  CtcLabels labels;
  double score;  // log-probability of the labels over all paths, plus weighted bigrams and bonuses
};

// Returns the best label sequences of every utterance, at most `beam_size`, best first. Ties are resolved in
// favour of the lexicographically smaller labels. Scores are exact if the search drops no prefix. Throws
// ShapeError for mismatched shapes. Throws DivergenceError if a logit is NaN or +inf, or if all logits of a
// frame are -inf.
std::vector<std::vector<CtcHypothesis>> ctc_beam_search(const Tensor& logits, const Tensor& lengths,
                                                        const CtcBeamOptions& options = {});

}  // namespace tapeformer
