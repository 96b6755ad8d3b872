#include "ops/kernels/class_sampling.h"

#include <algorithm>
#include <functional>
#include <vector>

#include "core/base/instances.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {

namespace {

// Returns the smallest logit that top_k and top_p keep.
template <class T>
double find_smallest_kept(const T* logits, const ClassScorer& score, std::vector<double>& sorted) {
  if (!score.is_restricted()) return -INFINITY;
  sorted.assign(logits, logits + score.classes);
  std::replace_if(
      sorted.begin(), sorted.end(), [](double x) { return std::isnan(x); }, -INFINITY);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  if (score.top_k > 0) {
    // Keeps all classes whose logits are at least the k-th largest logit.
    const double last = sorted[static_cast<size_t>(score.top_k - 1)];
    sorted.erase(std::upper_bound(sorted.begin(), sorted.end(), last, std::greater<>()), sorted.end());
  }
  double total = 0, sum = 0;
  for (const double logit : sorted) total += score.compute_softmax_weight(logit, sorted.front());
  for (const double logit : sorted)
    if ((sum += score.compute_softmax_weight(logit, sorted.front())) >= score.top_p * total) return logit;
  return sorted.back();
}

}  // namespace

template <class T, class Index>
void sample_classes(Backend, int64_t rows, const T* logits, const ClassScorer& score, Index* out) {
  constexpr int64_t kMinScores = 1 << 12;  // minimum number of scores per thread
  parallel_for(rows, kMinScores / score.classes + 1, [&](int64_t begin, int64_t end) {
    std::vector<double> sorted;
    for (int64_t row = begin; row < end; ++row) {
      const T* const own = logits + row * score.classes;
      const double smallest = find_smallest_kept(own, score, sorted);
      int64_t best = 0;
      double best_score = -INFINITY;
      for (int64_t c = 0; c < score.classes; ++c) {
        const double value = score.compute_score(row, c, own[c], smallest);
        if (!(value > best_score)) continue;
        best_score = value;
        best = c;
      }
      out[row] = static_cast<Index>(best);
    }
  });
}

void copy_tokens_at_position(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                             uint8_t* tokens) {
  uint8_t* const kept = columns + position * batch;
  if (position < prefix)
    std::copy_n(kept, batch, tokens);
  else
    std::copy_n(tokens, batch, kept);
}

template <class T>
struct SamplingKernels {
  inline static const FunctionInstances all{&sample_classes<T, uint8_t>, &sample_classes<T, int32_t>,
                                            &sample_classes<T, int64_t>};
};
template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace tapeformer::cpu
