// chrF2 (Popović, 2015, "chrF: character n-gram F-score for automatic MT evaluation"; 2016 for beta = 2),
// equal to the Python package sacrebleu 2.6.0 with its default options. All functions are thread-safe.
//
// A corpus is scored in two steps: add the statistics of its segments, in any order and grouping, and compute
// the score of the sum.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

struct ChrfOptions {
  bool lower_case = false;
};

inline constexpr size_t kChrfOrder = 6;  // the longest n-grams

// Counts of character n-grams over segments, for n = 1, ..., 6 at index n - 1.
struct ChrfStatistics {
  std::array<int64_t, kChrfOrder> hypothesis_totals{}, reference_totals{}, matches{};

  void add(const ChrfStatistics& other);
};

// Returns the statistics of a segment with the reference that has the best score, the first one in a tie.
// White space is ignored. The n-grams of the hypothesis are not counted for orders in which the reference has
// no n-grams. Each byte that is not valid UTF-8 counts as U+FFFD. Throws std::invalid_argument if there are
// no references.
ChrfStatistics count_chrf(std::string_view hypothesis, const std::vector<std::string_view>& references,
                          const ChrfOptions& options = {});

// Computes chrF2 = 100 · 5 P R / (4 P + R), from 0 to 100, where P and R are the means of matches /
// hypothesis_totals and matches / reference_totals over the orders for which both totals are positive.
// Returns 0 if there are no matches.
double compute_chrf(const ChrfStatistics& statistics);

// Returns a line such as "chrF2 = 53.02".
std::string format_chrf(double score);

// Returns sacrebleu's description of a chrF2 score, such as
// "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0".
std::string make_chrf_signature(const ChrfOptions& options, size_t reference_count);

}  // namespace tapeformer
