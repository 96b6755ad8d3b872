// Counts of n-grams for scores of translations. Internal to BLEU and chrF. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>

namespace tapeformer {

// Numbers of occurrences of the n-grams of a sequence. The keys refer to the characters of the sequence.
using NgramCounts = std::unordered_map<std::u32string_view, int64_t>;

// Returns the counts of the n-grams with `order` characters.
NgramCounts count_ngrams(std::u32string_view sequence, size_t order);

// Returns the number of n-grams with `order` characters in a sequence of `length` characters, with
// repetitions.
int64_t ngram_total(size_t length, size_t order);

// Returns the sum over all n-grams of the smaller of the two counts.
int64_t count_common_ngrams(const NgramCounts& a, const NgramCounts& b);

}  // namespace tapeformer
