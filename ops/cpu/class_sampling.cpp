#include "ops/kernels/class_sampling.h"

#include <algorithm>

#include "core/instances.h"
#include "core/threads.h"

namespace tapeformer::cpu {

template <class T>
void sample_classes(Backend, int64_t rows, const T* logits, const ClassScore& score, uint8_t* out) {
  constexpr int64_t kMinDraws = 1 << 12;  // minimum number of draws per thread
  parallel_for(rows, kMinDraws / score.classes + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      int64_t best = 0;
      double best_score = -INFINITY;
      for (int64_t c = 0; c < score.classes; ++c) {
        const double own = score.noisy_logit(row, c, logits[row * score.classes + c]);
        if (!(own > best_score)) continue;
        best_score = own;
        best = c;
      }
      out[row] = static_cast<uint8_t>(best);
    }
  });
}

void advance_tokens(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                    uint8_t* tokens) {
  uint8_t* const kept = columns + position * batch;
  if (position < prefix)
    std::copy_n(kept, batch, tokens);
  else
    std::copy_n(tokens, batch, kept);
}

template <class T>
struct SamplingKernels {
  inline static const Instances all{&sample_classes<T>};
};
template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace tapeformer::cpu
