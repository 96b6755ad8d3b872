#include "data/translation/chrf.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "core/base/errors.h"
#include "data/translation/bleu.h"
#include "data/translation/ngrams.h"
#include "data/translation/unicode.h"

namespace tapeformer {
namespace {

std::u32string read_characters(std::string_view segment, const ChrfOptions& options) {
  std::u32string text = decode_utf8(segment);
  if (options.lower_case) text = to_lower_case(text);
  std::erase_if(text, is_unicode_space);
  return text;
}

}  // namespace

void ChrfStatistics::add(const ChrfStatistics& other) {
  for (size_t i = 0; i < kChrfOrder; ++i) {
    hypothesis_totals[i] += other.hypothesis_totals[i];
    reference_totals[i] += other.reference_totals[i];
    matches[i] += other.matches[i];
  }
}

ChrfStatistics count_chrf(std::string_view hypothesis, const std::vector<std::string_view>& references,
                          const ChrfOptions& options) {
  if (references.empty()) throw std::invalid_argument("chrF: expected at least one reference, got none");
  const std::u32string characters = read_characters(hypothesis, options);
  std::vector<std::u32string> reference_characters;
  for (const std::string_view reference : references)
    reference_characters.push_back(read_characters(reference, options));
  std::vector<ChrfStatistics> candidates(references.size());
  for (size_t i = 0; i < kChrfOrder; ++i) {
    const NgramCounts ngrams = count_ngrams(characters, i + 1);
    for (size_t r = 0; r < references.size(); ++r) {
      const std::u32string& reference = reference_characters[r];
      if (reference.size() <= i) continue;
      candidates[r].hypothesis_totals[i] = ngram_total(characters.size(), i + 1);
      candidates[r].reference_totals[i] = ngram_total(reference.size(), i + 1);
      candidates[r].matches[i] = count_common_ngrams(ngrams, count_ngrams(reference, i + 1));
    }
  }
  return *std::max_element(candidates.begin(), candidates.end(),
                           [](const auto& a, const auto& b) { return compute_chrf(a) < compute_chrf(b); });
}

double compute_chrf(const ChrfStatistics& statistics) {
  double precision = 0, recall = 0;
  int order_count = 0;
  for (size_t i = 0; i < kChrfOrder; ++i) {
    if (statistics.hypothesis_totals[i] == 0 || statistics.reference_totals[i] == 0) continue;
    const auto matches = static_cast<double>(statistics.matches[i]);
    precision += matches / static_cast<double>(statistics.hypothesis_totals[i]);
    recall += matches / static_cast<double>(statistics.reference_totals[i]);
    ++order_count;
  }
  if (precision + recall == 0) return 0;
  precision /= order_count;
  recall /= order_count;
  return 100 * (5 * precision * recall / (4 * precision + recall));
}

std::string format_chrf(double score) {
  char text[64];
  std::snprintf(text, sizeof text, "chrF2 = %.2f", score);
  return text;
}

std::string make_chrf_signature(const ChrfOptions& options, size_t reference_count) {
  return concat_text("nrefs:", reference_count, "|case:", options.lower_case ? "lc" : "mixed",
                     "|eff:yes|nc:6|nw:0|space:no|version:", kSacrebleuVersion);
}

}  // namespace tapeformer
