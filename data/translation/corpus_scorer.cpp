#include "data/translation/corpus_scorer.h"

#include <stdexcept>

#include "core/base/errors.h"

namespace tapeformer {

CorpusScorer::CorpusScorer(std::vector<BleuOptions> bleu, const ChrfOptions& chrf, size_t reference_count)
    : bleu_options_(std::move(bleu)),
      chrf_options_(chrf),
      reference_count_(reference_count),
      bleu_(bleu_options_.size()) {}

void CorpusScorer::add(std::string_view hypothesis, const std::vector<std::string_view>& references) {
  if (references.size() != reference_count_)
    throw std::invalid_argument(concat_text("segment ", segment_count_ + 1, " has ", references.size(),
                                            " references, expected ", reference_count_));
  for (size_t i = 0; i < bleu_.size(); ++i)
    bleu_[i].add(count_bleu(hypothesis, references, bleu_options_[i]));
  chrf_.add(count_chrf(hypothesis, references, chrf_options_));
  ++segment_count_;
}

void CorpusScorer::add(const CorpusScorer& other) {
  for (size_t i = 0; i < bleu_.size(); ++i) bleu_[i].add(other.bleu_.at(i));
  chrf_.add(other.chrf_);
  segment_count_ += other.segment_count_;
}

std::vector<CorpusScore> CorpusScorer::compute() const {
  std::vector<CorpusScore> scores;
  for (size_t i = 0; i < bleu_.size(); ++i) {
    const BleuScore bleu = compute_bleu(bleu_[i]);
    scores.push_back(
        {"BLEU", bleu.score, bleu.format(), make_bleu_signature(bleu_options_[i], reference_count_)});
  }
  const double chrf = compute_chrf(chrf_);
  scores.push_back({"chrF2", chrf, format_chrf(chrf), make_chrf_signature(chrf_options_, reference_count_)});
  return scores;
}

}  // namespace tapeformer
