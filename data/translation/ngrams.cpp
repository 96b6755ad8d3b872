#include "data/translation/ngrams.h"

#include <algorithm>

namespace tapeformer {

NgramCounts count_ngrams(std::u32string_view sequence, size_t order) {
  NgramCounts counts;
  for (size_t i = 0; i + order <= sequence.size(); ++i) ++counts[sequence.substr(i, order)];
  return counts;
}

int64_t ngram_total(size_t length, size_t order) {
  return length < order ? 0 : static_cast<int64_t>(length - order + 1);
}

int64_t count_common_ngrams(const NgramCounts& a, const NgramCounts& b) {
  int64_t common = 0;
  for (const auto& [ngram, count] : a)
    if (const auto found = b.find(ngram); found != b.end()) common += std::min(count, found->second);
  return common;
}

}  // namespace tapeformer
