#include "ops/kernels/class_sampling.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"

namespace tapeformer::cuda {
namespace {

// Returns the smallest logit that top-k and top-p sampling allow in a row of logits. The threshold is found
// by bisection between the smallest finite logit and the largest logit of the row. All lanes of a warp call
// the function for the same row.
template <class T>
__device__ double find_logit_threshold(const T* logits, const ClassScorer& score) {
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarpSize);
  double largest = -INFINITY;
  double negated_smallest = -INFINITY;  // maximum of -logit over the finite logits
  for (int64_t c = lane; c < score.classes; c += kWarpSize) {
    const auto logit = static_cast<double>(logits[c]);
    largest = Maximum::apply(largest, logit);
    if (logit > -INFINITY) negated_smallest = Maximum::apply(negated_smallest, -logit);
  }
  largest = warp_reduce<Maximum>(largest);
  double threshold = -warp_reduce<Maximum>(negated_smallest);
  // Returns the number of classes whose logit is at least `from`. If use_weights is true, returns the sum of
  // the weights of these classes instead.
  const auto sum_above = [&](double from, bool use_weights) {
    double sum = 0;
    for (int64_t c = lane; c < score.classes; c += kWarpSize)
      if (const auto logit = static_cast<double>(logits[c]); logit >= from)
        sum += use_weights ? score.compute_softmax_weight(logit, largest) : 1;
    return warp_reduce<Plus>(sum);
  };
  // Returns the largest threshold in [lower, largest] for which sum_above(threshold, use_weights) is at least
  // min_sum.
  const auto bisect = [&](double lower, bool use_weights, double min_sum) {
    constexpr int kSteps = 80;
    double upper = largest;
    if (sum_above(largest, use_weights) >= min_sum) return largest;
    for (int step = 0; step < kSteps; ++step) {
      const double middle = lower + (upper - lower) / 2;
      if (sum_above(middle, use_weights) >= min_sum)
        lower = middle;
      else
        upper = middle;
    }
    return lower;
  };
  if (score.top_k > 0) threshold = bisect(threshold, false, static_cast<double>(score.top_k));
  if (score.top_p < 1) threshold = bisect(threshold, true, score.top_p * sum_above(threshold, true));
  return threshold;
}

// Samples the class of one row per warp. Each lane computes the scores of every 32nd class.
template <class T, class Index>
__global__ void sample_kernel(int64_t rows, const T* logits, ClassScorer score, bool is_restricted,
                              GraphRandomStream stream, Index* out) {
  const int64_t row = first_element() / kWarpSize;
  if (row >= rows) return;  // all lanes of a warp return together
  score.stream = stream.current_stream();
  const int64_t classes = score.classes;
  const double smallest = is_restricted ? find_logit_threshold(logits + row * classes, score) : -INFINITY;
  int64_t best = classes;
  double best_score = -INFINITY;
  for (int64_t c = threadIdx.x % kWarpSize; c < classes; c += kWarpSize) {
    const double class_score = score.compute_score(row, c, logits[row * classes + c], smallest);
    if (!(class_score > best_score)) continue;
    best_score = class_score;
    best = c;
  }
  for (int bits = kWarpSize / 2; bits > 0; bits /= 2) {
    const double other_score = __shfl_xor_sync(kAllLanes, best_score, bits);
    const int64_t other = __shfl_xor_sync(kAllLanes, best, bits);
    if (other_score > best_score || (other_score == best_score && other < best)) {
      best_score = other_score;
      best = other;
    }
  }
  if (threadIdx.x % kWarpSize == 0) out[row] = static_cast<Index>(best < classes ? best : 0);
}

__global__ void advance_kernel(int64_t batch, GraphStep step, int64_t prefix, uint8_t* columns,
                               uint8_t* tokens) {
  const int64_t position = step.current_step();
  for (int64_t b = first_element(); b < batch; b += element_stride()) {
    uint8_t& token = columns[position * batch + b];
    if (position < prefix)
      tokens[b] = token;
    else
      token = tokens[b];
  }
}

}  // namespace

template <class T, class Index>
void sample_classes(Backend, int64_t rows, const T* logits, const ClassScorer& score, Index* out) {
  constexpr int64_t kRowsPerBlock = 2;  // small blocks, because there are few rows
  launch(sample_kernel<T, Index>,
         make_row_launch((rows + kRowsPerBlock - 1) / kRowsPerBlock,
                         static_cast<int>(kRowsPerBlock) * kWarpSize),
         rows, logits, score, score.is_restricted(), GraphRandomStream(score.stream), out);
}

void copy_tokens_at_position(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                             uint8_t* tokens) {
  launch(advance_kernel, make_elementwise_launch(batch), batch, GraphStep(position), prefix, columns, tokens);
}

template <class T>
struct SamplingKernels {
  inline static const FunctionInstances all{&sample_classes<T, uint8_t>, &sample_classes<T, int32_t>,
                                            &sample_classes<T, int64_t>};
};
template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace tapeformer::cuda
