#include "data/translation/bleu.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <unordered_map>

#include "core/base/errors.h"
#include "data/translation/ngrams.h"

namespace tapeformer {
namespace {

// A map from the different tokens of a segment to numbers, so that n-grams of tokens are substrings of
// numbers.
class TokenNumbers {
 public:
  std::u32string convert(const std::vector<std::string>& tokens) {
    std::u32string numbers;
    for (const std::string& token : tokens)
      numbers += numbers_.try_emplace(token, static_cast<char32_t>(numbers_.size())).first->second;
    return numbers;
  }

 private:
  std::unordered_map<std::string, char32_t> numbers_;
};

int64_t find_closest_length(int64_t length, const std::vector<std::u32string>& references) {
  int64_t closest = static_cast<int64_t>(references.front().size());
  for (const std::u32string& reference : references) {
    const auto candidate = static_cast<int64_t>(reference.size());
    const int64_t difference = std::abs(candidate - length), best = std::abs(closest - length);
    if (difference < best || (difference == best && candidate < closest)) closest = candidate;
  }
  return closest;
}

// Returns the largest count of each n-gram in one of the references.
NgramCounts merge_ngrams(const std::vector<std::u32string>& references, size_t order) {
  NgramCounts merged = count_ngrams(references.front(), order);
  for (size_t i = 1; i < references.size(); ++i)
    for (const auto& [ngram, count] : count_ngrams(references[i], order)) {
      int64_t& largest = merged[ngram];
      largest = std::max(largest, count);
    }
  return merged;
}

}  // namespace

void BleuStatistics::add(const BleuStatistics& other) {
  hypothesis_length += other.hypothesis_length;
  reference_length += other.reference_length;
  for (size_t i = 0; i < kBleuOrder; ++i) {
    matches[i] += other.matches[i];
    totals[i] += other.totals[i];
  }
}

BleuStatistics count_bleu(std::string_view hypothesis, const std::vector<std::string_view>& references,
                          const BleuOptions& options) {
  if (references.empty()) throw std::invalid_argument("BLEU: expected at least one reference, got none");
  TokenNumbers numbers;
  const auto tokenize = [&](std::string_view segment) {
    return numbers.convert(tokenize_for_bleu(segment, options.tokenizer, options.lower_case));
  };
  const std::u32string hypothesis_tokens = tokenize(hypothesis);
  std::vector<std::u32string> reference_tokens;
  for (const std::string_view reference : references) reference_tokens.push_back(tokenize(reference));
  BleuStatistics result;
  result.hypothesis_length = static_cast<int64_t>(hypothesis_tokens.size());
  result.reference_length = find_closest_length(result.hypothesis_length, reference_tokens);
  for (size_t i = 0; i < kBleuOrder; ++i) {
    result.totals[i] = ngram_total(hypothesis_tokens.size(), i + 1);
    result.matches[i] =
        count_common_ngrams(count_ngrams(hypothesis_tokens, i + 1), merge_ngrams(reference_tokens, i + 1));
  }
  return result;
}

BleuScore compute_bleu(const BleuStatistics& statistics, bool effective_order) {
  BleuScore result;
  result.hypothesis_length = statistics.hypothesis_length;
  result.reference_length = statistics.reference_length;
  const auto hypothesis_length = static_cast<double>(statistics.hypothesis_length);
  const auto reference_length = static_cast<double>(statistics.reference_length);
  if (statistics.hypothesis_length < statistics.reference_length)
    result.brevity_penalty =
        statistics.hypothesis_length > 0 ? std::exp(1 - reference_length / hypothesis_length) : 0;
  const auto& matches = statistics.matches;
  if (std::all_of(matches.begin(), matches.end(), [](int64_t count) { return count == 0; })) return result;

  size_t order = 0;  // number of orders that have n-grams
  double smoothing = 1, log_sum = 0;
  for (; order < kBleuOrder && statistics.totals[order] > 0; ++order) {
    const auto total = static_cast<double>(statistics.totals[order]);
    if (matches[order] == 0) smoothing *= 2;
    result.precisions[order] =
        matches[order] == 0 ? 100 / (smoothing * total) : 100 * static_cast<double>(matches[order]) / total;
    log_sum += std::log(result.precisions[order]);
  }
  if (order == kBleuOrder || effective_order)
    result.score = result.brevity_penalty * std::exp(log_sum / static_cast<double>(order));
  return result;
}

std::string BleuScore::format() const {
  const double ratio = reference_length == 0
                           ? 0
                           : static_cast<double>(hypothesis_length) / static_cast<double>(reference_length);
  char text[256];
  std::snprintf(text, sizeof text,
                "BLEU = %.2f %.1f/%.1f/%.1f/%.1f (BP = %.3f ratio = %.3f hyp_len = %lld ref_len = %lld)",
                score, precisions[0], precisions[1], precisions[2], precisions[3], brevity_penalty, ratio,
                static_cast<long long>(hypothesis_length), static_cast<long long>(reference_length));
  return text;
}

std::string make_bleu_signature(const BleuOptions& options, size_t reference_count) {
  return concat_text("nrefs:", reference_count, "|case:", options.lower_case ? "lc" : "mixed",
                     "|eff:no|tok:", to_string(options.tokenizer), "|smooth:exp|version:", kSacrebleuVersion);
}

}  // namespace tapeformer
