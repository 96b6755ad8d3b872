#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/instances.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/online_softmax.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer::cpu {
namespace {

// Maximum number of heads that are processed together. Heads are processed together because the rows of all
// heads at one position are adjacent in memory.
constexpr int64_t kMaxGroup = 8;
constexpr int64_t kBlock = 64;  // number of keys between updates of the maximum

// Online softmax of several heads of one sequence. Keys are processed in blocks.
template <class T>
class StepGroup {
 public:
  StepGroup(const SoftmaxAttentionShape& shape, int64_t batch, int64_t first, int64_t group,
            AttentionRows<const T> q, AttentionRows<const T> key, AttentionRows<const T> value,
            AttentionRows<T> k, AttentionRows<T> v, int64_t capacity, AttentionRows<T> out)
      : shape_(shape),
        batch_(batch),
        first_(first),
        heads_(std::min(group, shape.heads - first)),
        q_(q),
        key_(key),
        value_(value),
        k_(k),
        v_(v),
        capacity_(capacity),
        out_(out) {}

  void run() {
    for (int64_t h = 0; h < heads_; ++h) {
      const int64_t last = (shape_.key_length - 1) % capacity_, head = first_ + h;
      std::copy_n(key_.row(batch_, 0, head), shape_.dim, k_.row(batch_, last, head));
      std::copy_n(value_.row(batch_, 0, head), shape_.value_dim, v_.row(batch_, last, head));
      maximum_[h] = -std::numeric_limits<T>::infinity();
      sum_[h] = 0;
      std::fill_n(out_row(h), shape_.value_dim, T{0});
    }
    const T scale = static_cast<T>(shape_.scale);
    const AttendedKeys attended{shape_.pattern.get_head_pattern(first_), shape_.key_length, shape_.key_length,
                                shape_.key_length, true};
    const int64_t query = shape_.key_length - 1;
    // Each iteration processes a range of at most kBlock keys that does not cross the end of the ring buffer.
    int64_t count = 0;
    for (PositionRun run = attended.find_keys(query, query + 1, 0); !run.is_empty();
         run = attended.find_keys(query, query + 1, run.begin + count)) {
      const int64_t begin = run.begin % capacity_;
      count = std::min({kBlock, run.end - run.begin, capacity_ - begin});
      for (int64_t j = 0; j < count; ++j)
        for (int64_t h = 0; h < heads_; ++h)
          scores_[h][j] =
              scale * dot(q_.row(batch_, 0, first_ + h), k_.row(batch_, begin + j, first_ + h), shape_.dim);
      for (int64_t h = 0; h < heads_; ++h) update_weights(h, count);
      for (int64_t j = 0; j < count; ++j)
        for (int64_t h = 0; h < heads_; ++h)
          add_scaled(scores_[h][j], v_.row(batch_, begin + j, first_ + h), out_row(h));
    }
    for (int64_t h = 0; h < heads_; ++h) multiply(out_row(h), sum_[h] == 0 ? T{0} : 1 / sum_[h]);
  }

 private:
  T* out_row(int64_t h) const { return out_.row(batch_, 0, first_ + h); }

  void add_scaled(T factor, const T* x, T* y) const {
#pragma omp simd
    for (int64_t i = 0; i < shape_.value_dim; ++i) y[i] += factor * x[i];
  }
  void multiply(T* y, T factor) const {
#pragma omp simd
    for (int64_t i = 0; i < shape_.value_dim; ++i) y[i] *= factor;
  }

  // Replaces each score of head h by exp(score - maximum). Rescales the sum and the result of the previous
  // blocks of keys to the new maximum.
  void update_weights(int64_t h, int64_t count) {
    T* const row = scores_[h];
    T block_maximum = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < count; ++j) block_maximum = row[j] > block_maximum ? row[j] : block_maximum;
    const OnlineSoftmaxUpdate<T> update = update_online_softmax(maximum_[h], block_maximum);
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < count; ++j) {
      row[j] = vmath::exp(row[j] - update.shift);
      total += row[j];
    }
    if (update.rescale_factor != 1) {
      sum_[h] *= update.rescale_factor;
      multiply(out_row(h), update.rescale_factor);
    }
    maximum_[h] = update.maximum;
    sum_[h] += total;
  }

  const SoftmaxAttentionShape& shape_;
  const int64_t batch_, first_, heads_;
  const AttentionRows<const T> q_, key_, value_;
  const AttentionRows<T> k_, v_;
  const int64_t capacity_;
  const AttentionRows<T> out_;
  T maximum_[kMaxGroup], sum_[kMaxGroup];
  T scores_[kMaxGroup][kBlock];
};

}  // namespace

template <class T>
void softmax_attention_step(Backend, const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                            AttentionRows<const T> key, AttentionRows<const T> value, AttentionRows<T> k,
                            AttentionRows<T> v, int64_t capacity, AttentionRows<T> out) {
  const int64_t keys = s.key_length - s.pattern.window.begin(s.key_length - 1);
  const int64_t work = s.heads * keys * (s.dim + s.value_dim);  // multiply-adds per sequence
  constexpr int64_t kMinWorkPerThread = 1 << 15;
  int64_t group = s.pattern.differs_by_head() ? 1 : std::min(kMaxGroup, s.heads);
  if (s.batch < get_thread_count() && work > kMinWorkPerThread)
    group = std::min(group, (s.batch * s.heads + get_thread_count() - 1) / get_thread_count());
  const int64_t groups = group > 0 ? (s.heads + group - 1) / group : 0;
  const int64_t grain = std::max<int64_t>(kMinWorkPerThread * groups / std::max<int64_t>(work, 1), 1);
  parallel_for(s.batch * groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      StepGroup<T>(s, i / groups, i % groups * group, group, q, key, value, k, v, capacity, out).run();
  });
}

template <class T>
struct SoftmaxAttentionStepKernels {
  inline static const FunctionInstances all{&softmax_attention_step<T>};
};
template struct SoftmaxAttentionStepKernels<float>;
template struct SoftmaxAttentionStepKernels<double>;

}  // namespace tapeformer::cpu
