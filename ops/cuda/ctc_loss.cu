#include "ops/kernels/ctc_loss.h"

#include "core/cuda/kernel.h"
#include "core/instances.h"
#include "ops/kernels/softmax.h"

namespace tapeformer::cuda {
namespace {

constexpr int64_t kMargin = 2;  // padding states on each side of a row; their value is kCtcLogZero
constexpr int64_t kMaxThreads = 512;

template <class T>
struct Batch {
  CtcShape shape;
  const T* logits;
  const int64_t *frame_lengths, *labels, *label_lengths;
  const uint8_t* feasible_mask;
  const T* normalizers;  // (batch, frames): log-sum-exp
  T scale;
  T *losses, *gradient;
  int64_t row;     // elements of a row of alpha and beta: maximum number of states, plus margins
  int64_t kept;    // number of rows of alpha per utterance: frames, or 2 without a gradient
  T* alpha;        // (batch, kept, row); alpha + beta at the end if the gradient is computed
  T* beta;         // (batch, 2, row)
  int* next;       // (batch, max_labels): index of the next occurrence of the label, or -1
  uint8_t* first;  // (batch, max_labels): 1 at the first occurrence of a label
};

// Returns log(exp(a) + exp(b) + exp(c)).
template <class T>
__device__ T log_sum(T a, T b, T c) {
  const T largest = Maximum::apply(Maximum::apply(a, b), c);
  return largest + std::log(std::exp(a - largest) + std::exp(b - largest) + std::exp(c - largest));
}

// The data of one utterance. Each thread of the block has a copy.
template <class T>
struct Utterance {
  int64_t frames, states, classes, blank;
  const T *logits, *normalizers;
  const int64_t* labels;

  __device__ Utterance(const Batch<T>& batch, int64_t b)
      : frames(batch.feasible_mask[b] ? batch.frame_lengths[b] : 0),
        states(2 * batch.label_lengths[b] + 1),
        classes(batch.shape.classes),
        blank(batch.shape.blank),
        logits(batch.logits + b * batch.shape.frames * batch.shape.classes),
        normalizers(batch.normalizers + b * batch.shape.frames),
        labels(batch.labels + b * batch.shape.max_labels) {}
  // Returns the log-probability of the class of state s at frame t.
  __device__ T emission(int64_t t, int64_t s) const {
    const T value = logits[t * classes + (s % 2 == 1 ? labels[s / 2] : blank)] - normalizers[t];
    return value > T(kCtcMinLogProbability) ? value : T(kCtcMinLogProbability);
  }
  // Returns 0 if a path may go from state s - 2 directly to state s, otherwise kCtcLogZero.
  __device__ T skip(int64_t s) const {
    return s % 2 == 1 && s >= 3 && s < states && labels[s / 2] != labels[s / 2 - 1] ? T{0} : T(kCtcLogZero);
  }
};

// Returns the maximum over the block. Consecutive calls alternate between two buffers, so one barrier per
// call suffices. The barrier also makes the rows of the current frame visible to the other threads.
template <class T>
__device__ T alternating_block_max(T value, int64_t turn) {
  __shared__ T warp_values[2][kWarpSize];
  T* const own = warp_values[turn % 2];
  const int warps = static_cast<int>(blockDim.x) / kWarpSize, thread = static_cast<int>(threadIdx.x);
  value = warp_reduce<Maximum>(value);
  if (thread % kWarpSize == 0) own[thread / kWarpSize] = value;
  __syncthreads();
  value = own[0];
  for (int warp = 1; warp < warps; ++warp) value = Maximum::apply(value, own[warp]);
  return value;
}

// Computes alpha_t(s) of one utterance per block and returns the loss. ops/cpu/ctc_loss.cpp defines alpha and
// beta.
template <class T>
__device__ T forward(const Utterance<T>& u, T* alpha, int64_t row_size, int64_t kept) {
  double shifts = 0;
  T shift = 0;
  for (int64_t t = 0; t < u.frames; ++t) {
    const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
    T* const row = alpha + t % kept * row_size + kMargin;
    const T* const before = alpha + (t + kept - 1) % kept * row_size + kMargin;
    T largest = T(kCtcLogZero);
    for (int64_t s = int64_t{threadIdx.x} - kMargin; s < u.states + kMargin; s += blockDim.x) {
      T value = T(kCtcLogZero);
      if (s >= span.begin && s < span.end)
        value = t == 0 ? u.emission(t, s)
                       : log_sum(before[s], before[s - 1], before[s - 2] + u.skip(s)) +
                             (u.emission(t, s) - shift);
      row[s] = value;
      largest = Maximum::apply(largest, value);
    }
    shifts += static_cast<double>(shift);
    shift = alternating_block_max(largest, t);
  }
  const T* const row = alpha + (u.frames - 1) % kept * row_size + kMargin;
  const T label = u.states > 1 ? row[u.states - 2] : T(kCtcLogZero);
  return static_cast<T>(-(shifts + static_cast<double>(log_sum(row[u.states - 1], label, T(kCtcLogZero)))));
}

// Adds beta to alpha. ops/cpu/ctc_loss.cpp defines alpha and beta.
template <class T>
__device__ void backward(const Utterance<T>& u, T* alpha, T* beta, int64_t row_size) {
  T shift = 0;
  for (int64_t t = u.frames - 1; t >= 0; --t) {
    const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
    T* const joint = alpha + t * row_size + kMargin;
    T* const row = beta + t % 2 * row_size + kMargin;
    const T* const after = beta + (t + 1) % 2 * row_size + kMargin;
    T largest = T(kCtcLogZero);
    for (int64_t s = int64_t{threadIdx.x} - kMargin; s < u.states + kMargin; s += blockDim.x) {
      T next = T(kCtcLogZero);
      if (s >= span.begin && s < span.end) {
        // Every path ends in one of the last two states.
        T own = s >= u.states - 2 ? T{0} : T(kCtcLogZero);
        if (t + 1 < u.frames) own = log_sum(after[s], after[s + 1], after[s + 2] + u.skip(s + 2)) - shift;
        joint[s] += own;
        next = own + u.emission(t, s);
      }
      row[s] = next;
      largest = Maximum::apply(largest, next);
    }
    shift = alternating_block_max(largest, t);
  }
}

// Computes the loss and, for a gradient, alpha + beta of one utterance per block.
template <class T>
__global__ void paths_kernel(Batch<T> batch) {
  const int64_t b = blockIdx.x;
  const Utterance<T> u(batch, b);
  if (u.frames == 0) {
    if (threadIdx.x == 0) batch.losses[b] = 0;
    return;
  }
  int missing = 0;
  for (int64_t t = threadIdx.x; t < u.frames; t += blockDim.x) missing += !std::isfinite(u.normalizers[t]);
  if (block_sum(missing) > 0) {
    if (threadIdx.x == 0) batch.losses[b] = static_cast<T>(NAN);
    return;
  }
  T* const alpha = batch.alpha + b * batch.kept * batch.row;
  const T loss = forward(u, alpha, batch.row, batch.kept);
  const bool impossible = loss >= T(-kCtcMinLogProbability / 2);
  if (threadIdx.x == 0) batch.losses[b] = impossible ? static_cast<T>(INFINITY) : loss;
  if (!batch.gradient || impossible) return;
  __syncthreads();  // all threads have read the shared values of the previous frame
  backward(u, alpha, batch.beta + b * 2 * batch.row, batch.row);
  // Links the occurrences of each label, so that gradient_kernel can add their posteriors.
  const int64_t count = u.states / 2, offset = b * batch.shape.max_labels;
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) {
    int64_t next = i + 1, earlier = 0;
    while (next < count && u.labels[next] != u.labels[i]) ++next;
    while (u.labels[earlier] != u.labels[i]) ++earlier;
    batch.next[offset + i] = next < count ? static_cast<int>(next) : -1;
    batch.first[offset + i] = earlier == i;
  }
}

// Computes gradient = scale (softmax - posterior) for each class. Runs one block per frame of an utterance.
template <class T>
__global__ void gradient_kernel(Batch<T> batch) {
  const int64_t b = blockIdx.x / batch.shape.frames, t = blockIdx.x - b * batch.shape.frames;
  const int64_t thread = threadIdx.x, threads = blockDim.x;
  const Utterance<T> u(batch, b);
  T* const out = batch.gradient + blockIdx.x * u.classes;
  const T loss = batch.losses[b];
  if (t >= u.frames || !std::isfinite(loss)) {
    const T value = t < u.frames && std::isnan(loss) ? static_cast<T>(NAN) : T{0};
    for (int64_t k = thread; k < u.classes; k += threads) out[k] = value;
    return;
  }
  const CtcStateRange span = find_ctc_state_range(t, u.frames, u.states);
  const T* const joint = batch.alpha + (b * batch.kept + t) * batch.row + kMargin;
  T largest = T(2 * kCtcLogZero), labels = 0, blanks = 0;
  for (int64_t s = span.begin + thread; s < span.end; s += threads)
    largest = Maximum::apply(largest, joint[s]);
  largest = block_max(largest);
  for (int64_t s = span.begin + thread; s < span.end; s += threads)
    (s % 2 == 1 ? labels : blanks) += std::exp(joint[s] - largest);
  blanks = block_sum(blanks);
  const T share = batch.scale / (blanks + block_sum(labels)), shift = u.normalizers[t];
  for (int64_t k = thread; k < u.classes; k += threads) {
    const T value = batch.scale * std::exp(u.logits[t * u.classes + k] - shift);
    out[k] = k == u.blank ? value - share * blanks : value;
  }
  __syncthreads();
  // The thread of the first occurrence of a label sums the posteriors of all occurrences.
  const int64_t offset = b * batch.shape.max_labels;
  for (int64_t i = thread; i < u.states / 2; i += threads) {
    if (!batch.first[offset + i]) continue;
    T sum = 0;
    for (int64_t label = i; label >= 0; label = batch.next[offset + label])
      if (const int64_t s = 2 * label + 1; s >= span.begin && s < span.end)
        sum += std::exp(joint[s] - largest);
    out[u.labels[i]] -= share * sum;
  }
}

}  // namespace

template <class T>
void ctc_loss(Backend, const CtcShape& shape, const T* logits, const int64_t* frame_lengths,
              const int64_t* labels, const int64_t* label_lengths, const uint8_t* feasible_mask, T scale,
              T* losses, T* gradient) {
  const int64_t frames = shape.batch * shape.frames, row = 2 * shape.max_labels + 1 + 2 * kMargin;
  const int64_t kept = gradient ? shape.frames : 2;
  const Scratch<T> normalizers(frames), alpha(shape.batch * kept * row),
      beta(gradient ? shape.batch * 2 * row : 0);
  const Scratch<int> next(gradient ? shape.batch * shape.max_labels : 0);
  const Scratch<uint8_t> first(gradient ? shape.batch * shape.max_labels : 0);
  const Batch<T> batch{
      shape,       logits,      frame_lengths, labels, label_lengths, feasible_mask, normalizers.data(),
      scale,       losses,      gradient,      row,    kept,          alpha.data(),  beta.data(),
      next.data(), first.data()};
  row_logsumexp(Backend{}, logits, normalizers.data(), frames, shape.classes);
  const int64_t threads = std::min((row + kWarpSize - 1) / kWarpSize * kWarpSize, kMaxThreads);
  launch(paths_kernel<T>, over_rows(shape.batch, static_cast<int>(threads)), batch);
  if (gradient) launch(gradient_kernel<T>, over_rows(frames, kDefaultBlockSize / 2), batch);
}

template <class T>
struct CtcLossKernels {
  inline static const Instances all{&ctc_loss<T>};
};
template struct CtcLossKernels<float>;
template struct CtcLossKernels<double>;

}  // namespace tapeformer::cuda
