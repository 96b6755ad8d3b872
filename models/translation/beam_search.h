// Translation by beam search with the length penalty of GNMT (Wu et al. 2016, "Google's neural machine
// translation system", section 7), as in Tensor2Tensor and trax.
#pragma once

#include <cstdint>
#include <vector>

#include "models/translation/decoder.h"

namespace tapeformer {

struct BeamSearchOptions {
  int64_t beam_size = 4;        // 1: greedy decoding
  double length_penalty = 0.6;  // alpha of the length penalty ((5 + tokens) / 6)^alpha
  int64_t hypotheses = 1;       // number of hypotheses of a sentence, at most beam_size
  // Maximum number of tokens of a translation, with the end token; 0: the number of source tokens plus 50. It
  // is at most max_length of the model.
  int64_t max_length = 0;
};

struct TranslationHypothesis {
  std::vector<int64_t> tokens;  // without the end token
  double log_probability = 0;   // of the tokens and the end token, in nats
  double score = 0;             // log_probability divided by the length penalty
  bool is_complete = true;  // false if the translation has reached the maximum length without an end token
};

// Returns alpha's length penalty of a translation with `tokens` tokens, the end token included.
double compute_length_penalty(int64_t tokens, double alpha);

// Translates sentences, source (sentences, source length) int64 with `lengths` (sentences,) valid tokens,
// both on the CPU. Returns the hypotheses of each sentence, the best first. At each step, a sentence keeps
// the beam_size most probable unfinished hypotheses and the beam_size finished ones with the highest scores,
// until no unfinished hypothesis can have a higher score than the worst one to be returned. If there are too
// few finished hypotheses at the maximum length, the best unfinished ones follow them. A result depends only
// on the sentence, up to rounding.
//
// The decoder keeps its packed weights, so one decoder should translate all batches.
std::vector<std::vector<TranslationHypothesis>> translate(TranslationDecoder& decoder, const Tensor& source,
                                                          const Tensor& lengths,
                                                          const BeamSearchOptions& options);

}  // namespace tapeformer
