// From the logits of a CTC model to labels. Graves et al. 2006, section 3.2 (best path), and Graves 2012,
// "Sequence transduction with recurrent neural networks" (prefix search), with the beam of Hannun et al.
// 2014, "First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs".
#pragma once

#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace tapeformer {

using CtcLabels = std::vector<int64_t>;

// The most probable class of every frame, runs counted once, blanks dropped: for each utterance. logits
// (batch, frames, classes) floating; lengths (batch,) int64 in [0, frames]. The first of equal classes wins.
std::vector<CtcLabels> ctc_greedy(const Tensor& logits, const Tensor& lengths, int64_t blank = 0);

struct CtcBeamOptions {
  int64_t blank = 0;
  int64_t beam = 16;  // prefixes kept after each frame
  // Log-probability of a label (column) after another (row), (classes, classes) float64, times bigram_weight;
  // row `blank` holds those of the first label. Undefined: none.
  Tensor bigram = {};
  double bigram_weight = 1;
  double label_bonus = 0;  // added for every label, against the short results that a bigram prefers
};

struct CtcHypothesis {
  CtcLabels labels;
  double score;  // log-probability of the labels, over all their paths, with bigram and bonus
};

// The best prefixes of every utterance, at most `beam`, best first. With a beam that holds every prefix the
// scores are exact. Ties go to the labels that come first in order, so that results repeat.
// Errors: ShapeError.
std::vector<std::vector<CtcHypothesis>> ctc_beam_search(const Tensor& logits, const Tensor& lengths,
                                                        const CtcBeamOptions& options = {});

}  // namespace tapeformer
