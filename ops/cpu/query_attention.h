// Softmax attention of single queries on the CPU. Keys and values are read where they are, because packing
// them for a matrix product costs more than the products of a few queries.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/cpu/bfloat16.h"
#include "core/cpu/vector_math.h"
#include "core/threads/threads.h"
#include "ops/kernels/online_softmax.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer::cpu {

// An online softmax of one query at a time, for several heads of one sequence. The heads are processed
// together, because the rows of all heads at one position are adjacent in memory.
// Stored is the type of the keys and values. Queries, weights and results have its compute type.
template <class Stored>
class QueryAttention {
 public:
  using T = Compute<Stored>;
  static constexpr int64_t kMaxHeads = 8;

  // Attends with the heads [first, first + heads) of sequence `batch`. The key at position p is in row
  // p % capacity of `k` and `v`.
  QueryAttention(const SoftmaxAttentionShape& shape, int64_t batch, int64_t first, int64_t heads,
                 AttentionRows<const Stored> k, AttentionRows<const Stored> v, int64_t capacity)
      : shape_(shape), batch_(batch), first_(first), heads_(heads), k_(k), v_(v), capacity_(capacity) {}

  // Computes row `row` of `out` from row `row` of `q`, for the keys that the query at position `query`
  // attends to.
  void attend(const AttendedKeys& attended, int64_t query, AttentionRows<const T> q, int64_t row,
              AttentionRows<T> out) {
    q_ = q;
    out_ = out;
    row_ = row;
    for (int64_t h = 0; h < heads_; ++h) {
      maximum_[h] = -std::numeric_limits<T>::infinity();
      sum_[h] = 0;
      std::fill_n(out_row(h), shape_.value_dim, T{0});
    }
    // Each iteration processes a range of at most kBlock keys that does not cross the end of the ring buffer.
    int64_t count = 0;
    for (PositionRun run = attended.find_keys(query, query + 1, 0); !run.is_empty();
         run = attended.find_keys(query, query + 1, run.begin + count)) {
      const int64_t begin = run.begin % capacity_;
      count = std::min({kBlock, run.end - run.begin, capacity_ - begin});
      add_keys(begin, count);
    }
    for (int64_t h = 0; h < heads_; ++h) multiply(out_row(h), sum_[h] == 0 ? T{0} : 1 / sum_[h]);
  }
  // The log-sum-exp of the scores of the last query.
  T log_sum(int64_t h) const { return sum_[h] == 0 ? maximum_[h] : maximum_[h] + std::log(sum_[h]); }

 private:
  static constexpr int64_t kBlock = 64;  // number of keys between updates of the maximum

  T* out_row(int64_t h) const { return out_.row(batch_, row_, first_ + h); }

  void add_keys(int64_t begin, int64_t count) {
    const T scale = static_cast<T>(shape_.scale);
    for (int64_t j = 0; j < count; ++j)
      for (int64_t h = 0; h < heads_; ++h)
        scores_[h][j] = scale * dot(q_.row(batch_, row_, first_ + h),
                                    k_.row(batch_, begin + j, shape_.key_head(first_ + h)), shape_.dim);
    for (int64_t h = 0; h < heads_; ++h) update_weights(h, count);
    for (int64_t j = 0; j < count; ++j)
      for (int64_t h = 0; h < heads_; ++h)
        add_scaled(scores_[h][j], v_.row(batch_, begin + j, shape_.key_head(first_ + h)), out_row(h));
  }
  void add_scaled(T factor, const Stored* x, T* y) const {
    visit_vectors<T>(
        0, shape_.value_dim, [&](int64_t i, int64_t count) __attribute__((always_inline)) {
          store_first(y + i, load_first(y + i, count) + factor * load_first(x + i, count), count);
        });
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
  const AttentionRows<const Stored> k_, v_;
  const int64_t capacity_;
  AttentionRows<const T> q_;
  AttentionRows<T> out_;
  int64_t row_ = 0;
  T maximum_[kMaxHeads], sum_[kMaxHeads];
  T scores_[kMaxHeads][kBlock];
};

// Calls f(batch, first head, number of heads) for all groups of heads of all sequences, in parallel. `work`
// is the number of multiply-adds of a sequence. The groups are smaller if the sequences do not keep all
// threads busy.
template <class T, class F>
void for_each_head_group(const SoftmaxAttentionShape& s, int64_t work, F&& f) {
  constexpr int64_t kMinWorkPerThread = 1 << 15;
  int64_t group = s.pattern.differs_by_head() ? 1 : std::min(QueryAttention<T>::kMaxHeads, s.heads);
  if (s.batch < get_thread_count() && work > kMinWorkPerThread)
    group = std::min(group, (s.batch * s.heads + get_thread_count() - 1) / get_thread_count());
  const int64_t groups = group > 0 ? (s.heads + group - 1) / group : 0;
  const int64_t grain = std::max<int64_t>(kMinWorkPerThread * groups / std::max<int64_t>(work, 1), 1);
  parallel_for(s.batch * groups, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t first = i % groups * group;
      f(i / groups, first, std::min(group, s.heads - first));
    }
  });
}

// Most queries of a sequence for which packing its keys is slower than reading them for each query.
inline constexpr int64_t kFewQueries = 8;
// Most keys, so that they stay in the cache between the queries.
inline constexpr int64_t kFewKeys = 1024;

template <class T>
bool is_for_query_attention(const SoftmaxAttentionShape& s, AttentionRows<const Compute<T>> bias) {
  const bool is_masked = s.causal && s.query_length > 1;  // a single query attends to all keys
  return s.query_length <= kFewQueries && s.key_length <= kFewKeys && !is_masked && !s.pattern.is_limited() &&
         !s.dropout.is_active() && !bias.data;
}

template <class T>
void attend_with_few_queries(const SoftmaxAttentionShape& s, AttentionRows<const T> q,
                             AttentionRows<const T> k, AttentionRows<const T> v, AttentionRows<T> out,
                             T* log_sums) {
  const int64_t work = s.heads * s.query_length * s.key_length * (s.dim + s.value_dim);
  for_each_head_group<T>(s, work, [&](int64_t batch, int64_t first, int64_t heads) {
    const int64_t keys = get_valid_length(s.key_lengths, batch, s.key_length);
    const AttendedKeys attended{s.pattern, s.query_length, s.key_length, keys, false};
    QueryAttention<T> group(s, batch, first, heads, k, v, std::max<int64_t>(s.key_length, 1));
    for (int64_t query = 0; query < s.query_length; ++query) {
      group.attend(attended, query, q, query, out);
      for (int64_t h = 0; h < heads; ++h)
        log_sums[(batch * s.heads + first + h) * s.query_length + query] = group.log_sum(h);
    }
  });
}

}  // namespace tapeformer::cpu
