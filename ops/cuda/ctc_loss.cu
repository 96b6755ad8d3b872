#include "ops/kernels/ctc_loss.h"

#include "core/base/instances.h"
#include "core/cuda/kernel.h"
#include "ops/kernels/softmax.h"

namespace tapeformer::cuda {
namespace {

// A row of alpha or beta has kMargin additional states with the value kCtcLogZero on each side, so that
// states s - 2 to s + 2 can be read for each state s.
constexpr int64_t kMargin = 2;
constexpr int64_t kMaxThreads = 512;

template <class T>
struct CtcBatch {
  CtcShape shape;
  const T* logits;
  const int64_t *frame_lengths, *labels, *label_lengths;
  const uint8_t* feasible_mask;
  const T* normalizers;  // (batch, frames): log-sum-exp of the logits of each frame
  T scale;
  T *losses, *gradient;
  // Number of elements in a row of alpha or beta. A row contains 2 * max_labels + 1 states, and kMargin
  // additional states on each side.
  int64_t row_size;
  int64_t alpha_rows;    // `frames`, or 2 if `gradient` is null
  T* alpha;              // (batch, alpha_rows, row_size); replaced by alpha + beta if `gradient` is not null
  T* beta;               // (batch, 2, row_size)
  int* next_occurrence;  // (batch, max_labels): index of the next equal label, or -1
  uint8_t* is_first_occurrence;  // (batch, max_labels): 1 if no earlier label is equal, else 0
};

// Returns log(exp(a) + exp(b) + exp(c)).
template <class T>
__device__ T log_sum(T a, T b, T c) {
  const T largest = Maximum::apply(Maximum::apply(a, b), c);
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest) + std::exp(c - largest));
}

// The logits and labels of one utterance.
template <class T>
struct CtcUtterance {
  int64_t frames, states, classes, blank;
  const T *logits, *normalizers;
  const int64_t* labels;

  __device__ CtcUtterance(const CtcBatch<T>& batch, int64_t b)
      : frames(batch.feasible_mask[b] ? batch.frame_lengths[b] : 0),
        states(2 * batch.label_lengths[b] + 1),
        classes(batch.shape.classes),
        blank(batch.shape.blank),
        logits(batch.logits + b * batch.shape.frames * batch.shape.classes),
        normalizers(batch.normalizers + b * batch.shape.frames),
        labels(batch.labels + b * batch.shape.max_labels) {}
  // Returns the log-probability of the class of state s at frame t. Values less than kCtcMinLogProbability
  // are replaced by kCtcMinLogProbability.
  __device__ T emission(int64_t t, int64_t s) const {
    const T value = logits[t * classes + (s % 2 == 1 ? labels[s / 2] : blank)] - normalizers[t];
    return value > T(kCtcMinLogProbability) ? value : T(kCtcMinLogProbability);
  }
  // Returns 0 if a path can go from state s - 2 directly to state s, otherwise kCtcLogZero.
  __device__ T skip_penalty(int64_t s) const {
    return s % 2 == 1 && s >= 3 && s < states && labels[s / 2] != labels[s / 2 - 1] ? T{0} : T(kCtcLogZero);
  }
};

// Returns the maximum of `value` over the threads of the block. `call_index` must increase or decrease by 1
// from call to call, so that consecutive calls use different buffers and each call needs only one barrier.
// The barrier also makes earlier writes of the block to global memory visible to all threads of the block.
template <class T>
__device__ T alternating_block_max(T value, int64_t call_index) {
  __shared__ T warp_values[2][kWarpSize];
  T* const buffer = warp_values[call_index % 2];
  const int warps = static_cast<int>(blockDim.x) / kWarpSize, thread = static_cast<int>(threadIdx.x);
  value = warp_reduce<Maximum>(value);
  if (thread % kWarpSize == 0) buffer[thread / kWarpSize] = value;
  __syncthreads();
  value = buffer[0];
  for (int warp = 1; warp < warps; ++warp) value = Maximum::apply(value, buffer[warp]);
  return value;
}

// Computes alpha_t(s), which ops/cpu/ctc_loss.cpp defines, for all frames t and states s of an utterance.
// Returns the loss of the utterance. All threads of the block must call compute_alpha().
template <class T>
__device__ T compute_alpha(const CtcUtterance<T>& u, T* alpha, int64_t row_size, int64_t alpha_rows) {
  double shifts = 0;
  T shift = 0;
  for (int64_t t = 0; t < u.frames; ++t) {
    const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
    T* const row = alpha + t % alpha_rows * row_size + kMargin;
    const T* const previous = alpha + (t + alpha_rows - 1) % alpha_rows * row_size + kMargin;
    T largest = T(kCtcLogZero);
    for (int64_t s = int64_t{threadIdx.x} - kMargin; s < u.states + kMargin; s += blockDim.x) {
      T value = T(kCtcLogZero);
      if (s >= span.begin && s < span.end)
        value = t == 0 ? u.emission(t, s)
                       : log_sum(previous[s], previous[s - 1], previous[s - 2] + u.skip_penalty(s)) +
                             (u.emission(t, s) - shift);
      row[s] = value;
      largest = Maximum::apply(largest, value);
    }
    shifts += static_cast<double>(shift);
    shift = alternating_block_max(largest, t);
  }
  const T* const row = alpha + (u.frames - 1) % alpha_rows * row_size + kMargin;
  const T label = u.states > 1 ? row[u.states - 2] : T(kCtcLogZero);
  return static_cast<T>(-(shifts + static_cast<double>(log_sum(row[u.states - 1], label, T(kCtcLogZero)))));
}

// Computes beta_t(s), which ops/cpu/ctc_loss.cpp defines, for all frames t and states s of an utterance, and
// adds beta_t(s) to `alpha`. All threads of the block must call add_beta().
template <class T>
__device__ void add_beta(const CtcUtterance<T>& u, T* alpha, T* beta, int64_t row_size) {
  T shift = 0;
  for (int64_t t = u.frames - 1; t >= 0; --t) {
    const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
    T* const alpha_beta = alpha + t * row_size + kMargin;
    T* const row = beta + t % 2 * row_size + kMargin;
    const T* const next_row = beta + (t + 1) % 2 * row_size + kMargin;
    T largest = T(kCtcLogZero);
    for (int64_t s = int64_t{threadIdx.x} - kMargin; s < u.states + kMargin; s += blockDim.x) {
      T row_value = T(kCtcLogZero);
      if (s >= span.begin && s < span.end) {
        // For the last frame, beta is 0 in the last two states, because every path ends in one of these
        // states.
        T beta_value = s >= u.states - 2 ? T{0} : T(kCtcLogZero);
        if (t + 1 < u.frames)
          beta_value = log_sum(next_row[s], next_row[s + 1], next_row[s + 2] + u.skip_penalty(s + 2)) - shift;
        alpha_beta[s] += beta_value;
        row_value = beta_value + u.emission(t, s);
      }
      row[s] = row_value;
      largest = Maximum::apply(largest, row_value);
    }
    shift = alternating_block_max(largest, t);
  }
}

// Computes the CTC loss of one utterance per thread block. If batch.gradient is not null, also computes alpha
// + beta and the links between equal labels, which gradient_kernel reads.
template <class T>
__global__ void paths_kernel(CtcBatch<T> batch) {
  const int64_t b = blockIdx.x;
  const CtcUtterance<T> u(batch, b);
  if (u.frames == 0) {
    if (threadIdx.x == 0) batch.losses[b] = 0;
    return;
  }
  int non_finite = 0;
  for (int64_t t = threadIdx.x; t < u.frames; t += blockDim.x) non_finite += !std::isfinite(u.normalizers[t]);
  if (block_sum(non_finite) > 0) {
    if (threadIdx.x == 0) batch.losses[b] = static_cast<T>(NAN);
    return;
  }
  T* const alpha = batch.alpha + b * batch.alpha_rows * batch.row_size;
  const T loss = compute_alpha(u, alpha, batch.row_size, batch.alpha_rows);
  const bool is_impossible = loss >= T(-kCtcMinLogProbability / 2);
  if (threadIdx.x == 0) batch.losses[b] = is_impossible ? static_cast<T>(INFINITY) : loss;
  if (!batch.gradient || is_impossible) return;
  // All threads must have read `alpha` and the shared buffer of compute_alpha() before add_beta() writes
  // them.
  __syncthreads();
  add_beta(u, alpha, batch.beta + b * 2 * batch.row_size, batch.row_size);
  // Links the occurrences of each label in the utterance. gradient_kernel follows the links to sum the
  // posteriors of a label.
  const int64_t count = u.states / 2, offset = b * batch.shape.max_labels;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    int64_t next = i + 1, first = 0;
    while (next < count && u.labels[next] != u.labels[i]) ++next;
    while (u.labels[first] != u.labels[i]) ++first;
    batch.next_occurrence[offset + i] = next < count ? static_cast<int>(next) : -1;
    batch.is_first_occurrence[offset + i] = first == i;
  }
}

// Computes scale * (softmax - posterior), the gradient of the loss with respect to the logit, for each class.
// Each thread block processes one frame of one utterance.
template <class T>
__global__ void gradient_kernel(CtcBatch<T> batch) {
  const int64_t b = blockIdx.x / batch.shape.frames, t = blockIdx.x - b * batch.shape.frames;
  const int64_t thread = threadIdx.x, threads = blockDim.x;
  const CtcUtterance<T> u(batch, b);
  T* const out = batch.gradient + blockIdx.x * u.classes;
  const T loss = batch.losses[b];
  if (t >= u.frames || !std::isfinite(loss)) {
    const T value = t < u.frames && std::isnan(loss) ? static_cast<T>(NAN) : T{0};
    for (int64_t k = thread; k < u.classes; k += threads) out[k] = value;
    return;
  }
  const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
  const T* const alpha_beta = batch.alpha + (b * batch.alpha_rows + t) * batch.row_size + kMargin;
  T largest = T(2 * kCtcLogZero), labels = 0, blanks = 0;
  for (int64_t s = span.begin + thread; s < span.end; s += threads)
    largest = Maximum::apply(largest, alpha_beta[s]);
  largest = block_max(largest);
  for (int64_t s = span.begin + thread; s < span.end; s += threads)
    (s % 2 == 1 ? labels : blanks) += std::exp(alpha_beta[s] - largest);
  blanks = block_sum(blanks);
  const T posterior_scale = batch.scale / (blanks + block_sum(labels)), shift = u.normalizers[t];
  for (int64_t k = thread; k < u.classes; k += threads) {
    const T value = batch.scale * std::exp(u.logits[t * u.classes + k] - shift);
    out[k] = k == u.blank ? value - posterior_scale * blanks : value;
  }
  __syncthreads();
  // The thread of the first occurrence of a label sums the posteriors of all occurrences.
  const int64_t offset = b * batch.shape.max_labels;
  for (int64_t i = thread; i < u.states / 2; i += threads) {
    if (!batch.is_first_occurrence[offset + i]) continue;
    T sum = 0;
    for (int64_t label = i; label >= 0; label = batch.next_occurrence[offset + label])
      if (const int64_t s = 2 * label + 1; s >= span.begin && s < span.end)
        sum += std::exp(alpha_beta[s] - largest);
    out[u.labels[i]] -= posterior_scale * sum;
  }
}

}  // namespace

template <class T>
void ctc_loss(Backend, const CtcShape& shape, const T* logits, const int64_t* frame_lengths,
              const int64_t* labels, const int64_t* label_lengths, const uint8_t* feasible_mask, T scale,
              T* losses, T* gradient) {
  const int64_t frames = shape.batch * shape.frames, row = 2 * shape.max_labels + 1 + 2 * kMargin;
  const int64_t alpha_rows = gradient ? shape.frames : 2;
  const Scratch<T> normalizers(frames), alpha(shape.batch * alpha_rows * row),
      beta(gradient ? shape.batch * 2 * row : 0);
  const Scratch<int> next_occurrence(gradient ? shape.batch * shape.max_labels : 0);
  const Scratch<uint8_t> is_first_occurrence(gradient ? shape.batch * shape.max_labels : 0);
  const CtcBatch<T> batch{shape,
                          logits,
                          frame_lengths,
                          labels,
                          label_lengths,
                          feasible_mask,
                          normalizers.data(),
                          scale,
                          losses,
                          gradient,
                          row,
                          alpha_rows,
                          alpha.data(),
                          beta.data(),
                          next_occurrence.data(),
                          is_first_occurrence.data()};
  row_logsumexp(Backend{}, logits, normalizers.data(), frames, shape.classes);
  const int64_t threads = std::min((row + kWarpSize - 1) / kWarpSize * kWarpSize, kMaxThreads);
  launch(paths_kernel<T>, make_row_launch(shape.batch, static_cast<int>(threads)), batch);
  if (gradient) launch(gradient_kernel<T>, make_row_launch(frames, kDefaultBlockSize / 2), batch);
}

template <class T>
struct CtcLossKernels {
  inline static const FunctionInstances all{&ctc_loss<T>};
};
template struct CtcLossKernels<float>;
template struct CtcLossKernels<double>;

}  // namespace tapeformer::cuda
