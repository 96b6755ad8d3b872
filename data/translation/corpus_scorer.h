// Several scores of the same translations, each with its signature.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/translation/bleu.h"
#include "data/translation/chrf.h"

namespace tapeformer {

struct CorpusScore {
  std::string name;       // "BLEU" or "chrF2"
  double value = 0;       // from 0 to 100
  std::string text;       // BleuScore::format() or format_chrf()
  std::string signature;  // sacrebleu's description of the score
};

// Scores of a corpus: BLEU once for each element of `bleu`, and chrF2. All segments have `reference_count`
// references. Scorers of different segments can be added. The object is not thread-safe.
class CorpusScorer {
 public:
  CorpusScorer(std::vector<BleuOptions> bleu, const ChrfOptions& chrf, size_t reference_count);

  // Adds a segment. Throws std::invalid_argument if the number of references is not reference_count.
  void add(std::string_view hypothesis, const std::vector<std::string_view>& references);
  // Adds the segments of a scorer that was constructed with the same arguments.
  void add(const CorpusScorer& other);

  int64_t segment_count() const { return segment_count_; }
  // Computes the scores of all added segments: BLEU in the order of `bleu`, and chrF2.
  std::vector<CorpusScore> compute() const;

 private:
  std::vector<BleuOptions> bleu_options_;
  ChrfOptions chrf_options_;
  size_t reference_count_;
  int64_t segment_count_ = 0;
  std::vector<BleuStatistics> bleu_;
  ChrfStatistics chrf_;
};

}  // namespace tapeformer
