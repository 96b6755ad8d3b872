#include "ops/kernels/ctc_loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "core/threads/threads.h"

namespace tapeformer::cpu {
namespace {

constexpr double kImpossible = kCtcLogZero, kMinLogProbability = kCtcMinLogProbability;
// Number of padding elements at each end of a row of alpha or beta. To compute state s, the recursions read
// elements s - 2 to s + 2 of a row.
constexpr int64_t kMargin = 2;

// Returns log(exp(a) + exp(b) + exp(c)).
template <class T>
[[gnu::always_inline]] inline T log_sum(T a, T b, T c) {
  T largest = a > b ? a : b;
  largest = largest > c ? largest : c;
  return largest + vmath::log(vmath::exp(a - largest) + vmath::exp(b - largest) + vmath::exp(c - largest));
}

template <class T>
void mask_margins(T* row, CtcStateRange span) {
  row[span.begin - 2] = row[span.begin - 1] = row[span.end] = row[span.end + 1] = T(kImpossible);
}

// Returns log(sum(exp(x))).
template <class T>
T compute_normalizer(const T* x, int64_t n) {
  T largest = x[0];
  for (int64_t k = 1; k < n; ++k) largest = largest > x[k] ? largest : x[k];
  T total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t k = 0; k < n; ++k) total += vmath::exp(x[k] - largest);
  return largest + std::log(total);
}

// The loss and the gradient of one utterance, with the working memory of the computation.
template <class T>
class Utterance {
 public:
  Utterance(int64_t frames, int64_t classes, int64_t labels)
      : frames_(frames),
        classes_(classes),
        states_(2 * labels + 1),
        row_(states_ + 2 * kMargin),
        state_class_(states_),
        skip_(row_),
        emission_(states_),
        normalizers_(frames),
        // One row of beta for the current frame, and one row of beta for the next frame.
        beta_(2 * row_),
        posterior_(states_) {}

  // Returns the negative log-likelihood. If `gradient` (frames, classes) is not null, writes the derivative
  // with respect to the logits, multiplied by `scale`, to `gradient`.
  T run(const T* logits, const int64_t* labels, int64_t blank, T scale, T* gradient) {
    // A feasible utterance without frames has no labels, so its likelihood is 1.
    if (frames_ == 0) return 0;
    bool finite = true;
    for (int64_t t = 0; t < frames_; ++t) {
      normalizers_.data()[t] = compute_normalizer(logits + t * classes_, classes_);
      finite = finite && std::isfinite(normalizers_.data()[t]);
    }
    if (!finite) return fail(std::numeric_limits<T>::quiet_NaN(), gradient);
    init_states(labels, blank);
    Scratch<T> alpha((gradient ? frames_ : std::min<int64_t>(frames_, 2)) * row_);
    const T loss = forward(logits, alpha.data(), gradient ? frames_ : 2);
    if (loss >= T(-kMinLogProbability / 2)) {
      if (gradient) std::fill_n(gradient, frames_ * classes_, T{0});
      return std::numeric_limits<T>::infinity();
    }
    if (gradient) backward(logits, alpha.data(), scale, gradient);
    return loss;
  }

 private:
  T fail(T value, T* gradient) {
    if (gradient) std::fill_n(gradient, frames_ * classes_, value);
    return value;
  }

  void init_states(const int64_t* labels, int64_t blank) {
    T* const skip = skip_.data() + kMargin;
    std::fill_n(skip_.data(), row_, T(kImpossible));
    for (int64_t s = 0; s < states_; ++s) {
      const bool label = s % 2 == 1;
      state_class_.data()[s] = static_cast<int32_t>(label ? labels[s / 2] : blank);
      if (label && s >= 3 && labels[s / 2] != labels[s / 2 - 1]) skip[s] = 0;
    }
  }

  // For each state in `span`, writes the log-probability of the class of the state at frame t to emission_.
  void emit(const T* logits, int64_t t, CtcStateRange span) {
    const T* const row = logits + t * classes_;
    const T shift = normalizers_.data()[t];
    const int32_t* const state_class = state_class_.data();
    T* const out = emission_.data();
#pragma omp simd
    for (int64_t s = span.begin; s < span.end; ++s) {
      const T value = row[state_class[s]] - shift;
      out[s] = value > T(kMinLogProbability) ? value : T(kMinLogProbability);
    }
  }

  // Runs the forward recursion and returns the loss. alpha_t(s) is the log-probability of the path prefixes
  // that end in state s at frame t. `alpha` stores the rows of the last `rows` frames. To keep the values
  // small, the maximum of each row is subtracted from the next row.
  T forward(const T* logits, T* alpha, int64_t rows) {
    T* row = alpha + kMargin;
    CtcStateRange span = find_ctc_state_range(0, frames_, states_);
    emit(logits, 0, span);
    T largest = T(kImpossible);
    for (int64_t s = span.begin; s < span.end; ++s) {
      row[s] = emission_.data()[s];
      largest = std::max(largest, row[s]);
    }
    mask_margins(row, span);
    double shifts = 0;
    for (int64_t t = 1; t < frames_; ++t) {
      const T* const before = row;
      row = alpha + t % rows * row_ + kMargin;
      span = find_ctc_state_range(t, frames_, states_);
      emit(logits, t, span);
      shifts += static_cast<double>(largest);
      largest = forward_step(before, row, span, largest);
      mask_margins(row, span);
    }
    const T last = row[states_ - 1], label = states_ > 1 ? row[states_ - 2] : T(kImpossible);
    return static_cast<T>(-(shifts + static_cast<double>(log_sum(last, label, T(kImpossible)))));
  }

  T forward_step(const T* before, T* row, CtcStateRange span, T shift) const {
    const T* const skip = skip_.data() + kMargin;
    const T* const emission = emission_.data();
    T largest = T(kImpossible);
#pragma omp simd reduction(max : largest)
    for (int64_t s = span.begin; s < span.end; ++s) {
      const T value = log_sum(before[s], before[s - 1], before[s - 2] + skip[s]) + (emission[s] - shift);
      row[s] = value;
      largest = largest > value ? largest : value;
    }
    return largest;
  }

  // Maxima over the states of a frame.
  struct Largest {
    T beta, posterior;
  };
  // Computes beta(s), the log-probability of the path suffixes after this frame, given state s at this frame.
  // Writes beta + emission to `row`, and alpha + beta to posterior_. Returns the maxima of beta + emission
  // and of alpha + beta. `after` is the `row` of the next frame. `shift` is subtracted from beta.
  Largest backward_step(const T* after, const T* alpha, T* row, CtcStateRange span, T shift) {
    const T* const skip = skip_.data() + kMargin;
    const T* const emission = emission_.data();
    T* const posterior = posterior_.data();
    T largest_beta = T(kImpossible), largest_posterior = T(2 * kImpossible);
#pragma omp simd reduction(max : largest_beta, largest_posterior)
    for (int64_t s = span.begin; s < span.end; ++s) {
      const T beta = log_sum(after[s], after[s + 1], after[s + 2] + skip[s + 2]) - shift;
      const T joint = alpha[s] + beta, next = beta + emission[s];
      posterior[s] = joint;
      row[s] = next;
      largest_posterior = largest_posterior > joint ? largest_posterior : joint;
      largest_beta = largest_beta > next ? largest_beta : next;
    }
    return {largest_beta, largest_posterior};
  }

  void backward(const T* logits, const T* alpha, T scale, T* gradient) {
    // Each path ends in one of the last two states.
    T* after = beta_.data() + kMargin;
    T* row = after + row_;
    std::fill_n(beta_.data(), 2 * row_, T(kImpossible));
    after[states_ - 1] = 0;
    if (states_ > 1) after[states_ - 2] = 0;
    T shift = 0;
    for (int64_t t = frames_ - 1; t >= 0; --t) {
      const CtcStateRange span = find_ctc_state_range(t, frames_, states_);
      emit(logits, t, span);
      // The last frame has no transition to a next frame.
      const Largest largest = t == frames_ - 1
                                  ? last_frame(after, alpha + t * row_ + kMargin, row, span)
                                  : backward_step(after, alpha + t * row_ + kMargin, row, span, shift);
      shift = largest.beta;
      mask_margins(row, span);
      write_gradient(logits, t, span, largest.posterior, scale, gradient + t * classes_);
      std::swap(row, after);
    }
  }

  Largest last_frame(const T* end, const T* alpha, T* row, CtcStateRange span) {
    Largest largest{T(kImpossible), T(2 * kImpossible)};
    for (int64_t s = span.begin; s < span.end; ++s) {
      posterior_.data()[s] = alpha[s] + end[s];
      row[s] = end[s] + emission_.data()[s];
      largest = {std::max(largest.beta, row[s]), std::max(largest.posterior, posterior_.data()[s])};
    }
    return largest;
  }

  // Writes scale * (softmax - posterior) for each class at frame t to `out`. On entry, posterior_ contains
  // unnormalized log-probabilities, and `largest` is their maximum.
  void write_gradient(const T* logits, int64_t t, CtcStateRange span, T largest, T scale, T* out) {
    T *const posterior = posterior_.data(), *const first = posterior + span.begin;
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < span.end - span.begin; ++i) {
      first[i] = vmath::exp(first[i] - largest);
      total += first[i];
    }
    const T* const row = logits + t * classes_;
    const T shift = normalizers_.data()[t], share = scale / total;
#pragma omp simd
    for (int64_t k = 0; k < classes_; ++k) out[k] = scale * vmath::exp(row[k] - shift);
    // Every second state is a blank. The posteriors of the blanks are summed in a register, because repeated
    // additions to memory are slow.
    const int64_t first_blank = span.begin + span.begin % 2, first_label = span.begin + 1 - span.begin % 2;
    T blanks = 0;
    for (int64_t s = first_blank; s < span.end; s += 2) blanks += posterior[s];
    out[state_class_.data()[0]] -= share * blanks;
    for (int64_t s = first_label; s < span.end; s += 2) out[state_class_.data()[s]] -= share * posterior[s];
  }

  int64_t frames_, classes_, states_, row_;
  Scratch<int32_t> state_class_;
  // skip_[kMargin + s] is 0 if a path can go directly from state s - 2 to state s, and kImpossible otherwise.
  Scratch<T> skip_, emission_, normalizers_, beta_, posterior_;
};

}  // namespace

template <class T>
void ctc_loss(Backend, const CtcShape& shape, const T* logits, const int64_t* frame_lengths,
              const int64_t* labels, const int64_t* label_lengths, const uint8_t* feasible_mask, T scale,
              T* losses, T* gradient) {
  const int64_t utterance = shape.frames * shape.classes;
  parallel_for(shape.batch, 1, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t frames = feasible_mask[b] ? frame_lengths[b] : 0;
      T* const own = gradient ? gradient + b * utterance : nullptr;
      losses[b] = 0;
      if (feasible_mask[b])
        losses[b] = Utterance<T>(frames, shape.classes, label_lengths[b])
                        .run(logits + b * utterance, labels + b * shape.max_labels, shape.blank, scale, own);
      if (own) std::fill(own + frames * shape.classes, own + utterance, T{0});
    }
  });
}

template <class T>
struct CtcLossKernels {
  inline static const FunctionInstances all{&ctc_loss<T>};
};
template struct CtcLossKernels<float>;
template struct CtcLossKernels<double>;

}  // namespace tapeformer::cpu
