#include "ops/kernels/class_sampling.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"

namespace tapeformer::cuda {
namespace {

// Returns the smallest logit that top_k and top_p keep. All lanes of a warp call the function for the same
// row.
//
// Bisects the range of the finite logits. Each step adds up the weights, or the number, of the classes whose
// logit is at least the middle of the range. The number of steps suffices to separate any two doubles in the
// range.
template <class T>
__device__ double smallest_kept(const T* logits, const ClassScorer& score) {
  const auto lane = static_cast<int64_t>(threadIdx.x % kWarpSize);
  double largest = -INFINITY, opposite = -INFINITY;  // opposite: minus the smallest finite logit
  for (int64_t c = lane; c < score.classes; c += kWarpSize) {
    const auto logit = static_cast<double>(logits[c]);
    largest = Maximum::apply(largest, logit);
    if (logit > -INFINITY) opposite = Maximum::apply(opposite, -logit);
  }
  largest = warp_reduce<Maximum>(largest);
  double low = -warp_reduce<Maximum>(opposite);
  // Returns the total weight of the classes whose logit is at least `from`, or their number.
  const auto sum_from = [&](double from, bool weighted) {
    double sum = 0;
    for (int64_t c = lane; c < score.classes; c += kWarpSize)
      if (const auto logit = static_cast<double>(logits[c]); logit >= from)
        sum += weighted ? score.softmax_weight(logit, largest) : 1;
    return warp_reduce<Plus>(sum);
  };
  const auto bisect = [&](double kept, bool weighted, double wanted) {
    constexpr int kSteps = 80;
    double above = largest;
    if (sum_from(largest, weighted) >= wanted) return largest;
    for (int step = 0; step < kSteps; ++step) {
      const double middle = kept + (above - kept) / 2;
      if (sum_from(middle, weighted) >= wanted)
        kept = middle;
      else
        above = middle;
    }
    return kept;
  };
  if (score.top_k > 0) low = bisect(low, false, static_cast<double>(score.top_k));
  if (score.top_p < 1) low = bisect(low, true, score.top_p * sum_from(low, true));
  return low;
}

// Samples one row per warp. Each lane handles every 32nd class.
template <class T, class Index>
__global__ void sample_kernel(int64_t rows, const T* logits, ClassScorer score, bool is_restricted,
                              GraphRandomStream stream, Index* out) {
  const int64_t row = first_element() / kWarpSize;
  if (row >= rows) return;  // all lanes of a warp return together
  score.stream = stream.now();
  const int64_t classes = score.classes;
  const double smallest = is_restricted ? smallest_kept(logits + row * classes, score) : -INFINITY;
  int64_t best = classes;
  double best_score = -INFINITY;
  for (int64_t c = threadIdx.x % kWarpSize; c < classes; c += kWarpSize) {
    const double own = score.compute_score(row, c, logits[row * classes + c], smallest);
    if (!(own > best_score)) continue;
    best_score = own;
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

template <class T, class Index>
void sample_classes(Backend, int64_t rows, const T* logits, const ClassScorer& score, Index* out) {
  constexpr int64_t kRowsPerBlock = 2;  // small blocks, because there are few rows
  launch(sample_kernel<T, Index>,
         over_rows((rows + kRowsPerBlock - 1) / kRowsPerBlock, static_cast<int>(kRowsPerBlock) * kWarpSize),
         rows, logits, score, score.is_restricted(), GraphRandomStream(score.stream), out);
}

void advance_tokens(Backend, int64_t batch, int64_t position, int64_t prefix, uint8_t* columns,
                    uint8_t* tokens) {
  launch(advance_kernel, over_elements(batch), batch, GraphStep(position), prefix, columns, tokens);
}

template <class T>
struct SamplingKernels {
  inline static const Instances all{&sample_classes<T, uint8_t>, &sample_classes<T, int32_t>,
                                    &sample_classes<T, int64_t>};
};
template struct SamplingKernels<float>;
template struct SamplingKernels<double>;

}  // namespace tapeformer::cuda
