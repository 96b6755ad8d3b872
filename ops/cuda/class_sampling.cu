#include "ops/kernels/class_sampling.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"

namespace tapeformer::cuda {
namespace {

// Samples one row per warp. Each lane handles every 32nd class.
template <class T>
__global__ void sample_kernel(int64_t rows, const T* logits, ClassScore score, GraphRandomStream stream,
                              uint8_t* out) {
  const int64_t row = first_element() / kWarp;
  if (row >= rows) return;  // all lanes of a warp return together
  score.stream = stream.now();
  const int64_t classes = score.classes;
  int64_t best = classes;
  double best_score = -INFINITY;
  for (int64_t c = threadIdx.x % kWarp; c < classes; c += kWarp) {
    const double own = score.noisy_logit(row, c, logits[row * classes + c]);
    if (!(own > best_score)) continue;
    best_score = own;
    best = c;
  }
  for (int bits = kWarp / 2; bits > 0; bits /= 2) {
    const double other_score = __shfl_xor_sync(kAllLanes, best_score, bits);
    const int64_t other = __shfl_xor_sync(kAllLanes, best, bits);
    if (other_score > best_score || (other_score == best_score && other < best)) {
      best_score = other_score;
      best = other;
    }
  }
  if (threadIdx.x % kWarp == 0) out[row] = static_cast<uint8_t>(best < classes ? best : 0);
}

__global__ void advance_kernel(int64_t batch, GraphStep step, int64_t prefix, uint8_t* columns,
                               uint8_t* tokens) {
  const int64_t position = step.now();
  for (int64_t b = first_element(); b < batch; b += element_stride()) {
    uint8_t& kept = columns[position * batch + b];
    if (position < prefix)
      tokens[b] = kept;
    else
      kept = tokens[b];
  }
}

}  // namespace

template <class T>
void sample_classes(Backend, int64_t rows, const T* logits, const ClassScore& score, uint8_t* out) {
  constexpr int64_t kRowsPerBlock = 2;  // small blocks, because there are few rows
  launch(sample_kernel<T>,
         over_rows((rows + kRowsPerBlock - 1) / kRowsPerBlock, static_cast<int>(kRowsPerBlock) * kWarp), rows,
         logits, score, GraphRandomStream(score.stream), out);
}

void advance_tokens(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                    uint8_t* tokens) {
  launch(advance_kernel, over_elements(batch), batch, GraphStep(position), prefix, columns, tokens);
}

template <class T>
struct SamplingKernels {
  inline static const Instances all{&sample_classes<T>};
};
template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace tapeformer::cuda
