// BLEU (Papineni et al., 2002, "BLEU: a method for automatic evaluation of machine translation"), equal to
// the Python package sacrebleu 2.6.0 with its default smoothing "exp". All functions are thread-safe.
//
// A corpus is scored in two steps: add the statistics of its segments, in any order and grouping, and compute
// the score of the sum.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/translation/bleu_tokenizer.h"

namespace tapeformer {

// The version of sacrebleu whose scores and signatures are computed.
inline constexpr const char* kSacrebleuVersion = "2.6.0";

struct BleuOptions {
  BleuTokenizer tokenizer = BleuTokenizer::mteval_13a;
  bool lower_case = false;
};

inline constexpr size_t kBleuOrder = 4;  // the longest n-grams

// Counts over segments, for n = 1, ..., 4 at index n - 1.
struct BleuStatistics {
  int64_t hypothesis_length = 0, reference_length = 0;  // in tokens
  std::array<int64_t, kBleuOrder> matches{};            // n-grams of hypotheses that references contain
  std::array<int64_t, kBleuOrder> totals{};             // n-grams of hypotheses

  void add(const BleuStatistics& other);
};

// Returns the statistics of a segment. The reference length is the one that is closest to the length of the
// hypothesis, the shorter one in a tie. The matches of an n-gram are limited to its largest count in a single
// reference. Throws std::invalid_argument if there are no references.
BleuStatistics count_bleu(std::string_view hypothesis, const std::vector<std::string_view>& references,
                          const BleuOptions& options = {});

struct BleuScore {
  double score = 0;                             // BLEU, from 0 to 100
  std::array<double, kBleuOrder> precisions{};  // in percent, smoothed
  double brevity_penalty = 1;
  int64_t hypothesis_length = 0, reference_length = 0;

  // Returns a line such as
  // "BLEU = 48.89 85.7/66.7/40.0/25.0 (BP = 1.000 ratio = 1.000 hyp_len = 7 ref_len = 7)".
  std::string format() const;
};

// Computes BLEU = BP · exp(Σ_n ln p_n / 4) with p_n = 100 matches_n / totals_n and the brevity penalty
// BP = min(1, exp(1 - reference_length / hypothesis_length)). The k-th p_n without matches is smoothed to
// 100 / (2^k totals_n), as in mteval-v13a.pl. The score is 0 if there are no matches at all, or if an order
// has no n-grams. With `effective_order`, recommended for single segments, the mean is over the orders that
// have n-grams.
BleuScore compute_bleu(const BleuStatistics& statistics, bool effective_order = false);

// Returns sacrebleu's description of a BLEU score, such as
// "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0".
std::string make_bleu_signature(const BleuOptions& options, size_t reference_count);

}  // namespace tapeformer
