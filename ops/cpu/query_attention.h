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

// An online softmax of one query at a time, for several heads of queries that read one head of keys and
// values. Stored is the type of the keys and values. Queries, weights and results have its compute type.
template <class Stored>
class QueryAttention {
 public:
  using T = Compute<Stored>;
  static constexpr int64_t kMaxHeads = 8;

  // Attends with the heads [first, first + heads) of sequence `batch`. The key at position p is in row
  // p % capacity of `k` and `v`.
  QueryAttention(const SoftmaxAttentionShape& shape, int64_t batch, int64_t first, int64_t heads,
                 AttentionRows<const Stored> k, AttentionRows<const Stored> v, int64_t capacity)
      : shape_(shape),
        batch_(batch),
        first_(first),
        heads_(heads),
        k_(k.row(batch, 0, shape.key_head(first))),
        v_(v.row(batch, 0, shape.key_head(first))),
        k_stride_(k.length_stride),
        v_stride_(v.length_stride),
        capacity_(capacity) {}

  // Computes row `row` of `out` from row `row` of `q`, for the keys that the query at position `query`
  // attends to.
  void attend(const AttendedKeys& attended, int64_t query, AttentionRows<const T> q, int64_t row,
              AttentionRows<T> out) {
    const auto out_row = [&](int64_t h) { return out.row(batch_, row, first_ + h); };
    for (int64_t h = 0; h < heads_; ++h) {
      maximum_[h] = -std::numeric_limits<T>::infinity();
      sum_[h] = 0;
      std::fill_n(out_row(h), shape_.value_dim, T{0});
    }
    for (PositionRun run = attended.find_keys(query, query + 1, 0); !run.is_empty();) {
      const int64_t count = collect_rows(attended, query, run);
      for (int64_t h = 0; h < heads_; ++h) {
        compute_scores(q.row(batch_, row, first_ + h), count);
        update_weights(h, count, out_row(h));
        add_values(count, out_row(h));
      }
    }
    for (int64_t h = 0; h < heads_; ++h) multiply(out_row(h), sum_[h] == 0 ? T{0} : 1 / sum_[h]);
  }
  // The log-sum-exp of the scores of the last query.
  T log_sum(int64_t h) const { return sum_[h] == 0 ? maximum_[h] : maximum_[h] + std::log(sum_[h]); }

 private:
  // Number of keys between updates of the maximum. The values of a block, which are prefetched while its
  // scores are computed, stay in the second-level cache. Smaller blocks interrupt the streams of keys and
  // values.
  static constexpr int64_t kBlock = 1024;

  // Writes the rows of the next keys, at most kBlock, to rows_. Returns their number. `run` contains the
  // first of the keys, and becomes the keys after them.
  int64_t collect_rows(const AttendedKeys& attended, int64_t query, PositionRun& run) {
    int64_t count = 0;
    while (count < kBlock && !run.is_empty()) {
      int64_t row = run.begin % capacity_;
      const int64_t end = std::min(run.end, run.begin + kBlock - count);
      for (int64_t position = run.begin; position < end; ++position) {
        rows_[count++] = row;
        if (++row == capacity_) row = 0;
      }
      run = attended.find_keys(query, query + 1, end);
    }
    return count;
  }
  void compute_scores(const T* q, int64_t count) {
    constexpr int64_t kTogether = 4;  // dot products whose sums do not wait for each other
    const T scale = static_cast<T>(shape_.scale);
    int64_t j = 0;
    for (; j + kTogether <= count; j += kTogether) {
      Vector<T> totals[kTogether] = {};
      const Stored* rows[kTogether];
      for (int64_t t = 0; t < kTogether; ++t) {
        rows[t] = k_ + rows_[j + t] * k_stride_;
        prefetch_row(v_ + rows_[j + t] * v_stride_, shape_.value_dim);  // for add_values()
      }
      visit_vectors<T>(
          0, shape_.dim, [&](int64_t i, int64_t n) __attribute__((always_inline)) {
            const Vector<T> x = load_first(q + i, n);
            for (int64_t t = 0; t < kTogether; ++t) totals[t] += x * load_first(rows[t] + i, n);
          });
      for (int64_t t = 0; t < kTogether; ++t) scores_[j + t] = scale * sum(totals[t]);
    }
    for (; j < count; ++j) scores_[j] = scale * dot(q, k_ + rows_[j] * k_stride_, shape_.dim);
  }
  // Adds the values of the block, multiplied by the weights.
  void add_values(int64_t count, T* out) const {
    int64_t column = 0;
    const auto add_while_possible = [&]<int64_t kVectors> {
      constexpr int64_t kWidth = kVectors * kLanes<T>;
      for (; column + kWidth <= shape_.value_dim; column += kWidth)
        add_columns<kVectors>(column, count, kWidth, out);
    };
    add_while_possible.template operator()<4>();
    add_while_possible.template operator()<3>();
    add_while_possible.template operator()<2>();
    add_while_possible.template operator()<1>();
    if (column < shape_.value_dim) add_columns<1>(column, count, shape_.value_dim - column, out);
  }
  // Adds `width` columns of the rows, which are kVectors vectors. The products are added to 8 vectors or so,
  // in registers, because each addition waits for the previous one to the same vector.
  template <int64_t kVectors>
  [[gnu::always_inline]] void add_columns(int64_t column, int64_t count, int64_t width, T* out) const {
    constexpr int64_t kKeys = 8 / kVectors;
    Vector<T> sums[kKeys][kVectors] = {};
    const auto visit = [&](auto f) __attribute__((always_inline)) {
      for (int64_t i = 0; i < kVectors; ++i) f(i, column + i * kLanes<T>, width - i * kLanes<T>);
    };
    const auto add_keys = [&]<int64_t kCount>(int64_t j) __attribute__((always_inline)) {
      for (int64_t t = 0; t < kCount; ++t) {
        const Stored* const row = v_ + rows_[j + t] * v_stride_;
        visit([&](int64_t i, int64_t first, int64_t n) __attribute__((always_inline)) {
          sums[t][i] += scores_[j + t] * load_first(row + first, n);
        });
      }
    };
    int64_t j = 0;
    for (; j + kKeys <= count; j += kKeys) add_keys.template operator()<kKeys>(j);
    for (; j < count; ++j) add_keys.template operator()<1>(j);
    visit([&](int64_t i, int64_t first, int64_t n) __attribute__((always_inline)) {
      Vector<T> total = load_first(out + first, n);
      for (int64_t t = 0; t < kKeys; ++t) total += sums[t][i];
      store_first(out + first, total, n);
    });
  }
  void multiply(T* y, T factor) const {
#pragma omp simd
    for (int64_t i = 0; i < shape_.value_dim; ++i) y[i] *= factor;
  }

  // Replaces each score of head h by exp(score - maximum). Rescales the sum and the result of the previous
  // blocks of keys to the new maximum.
  void update_weights(int64_t h, int64_t count, T* out) {
    T block_maximum = -std::numeric_limits<T>::infinity();
    for (int64_t j = 0; j < count; ++j)
      block_maximum = scores_[j] > block_maximum ? scores_[j] : block_maximum;
    const OnlineSoftmaxUpdate<T> update = update_online_softmax(maximum_[h], block_maximum);
    T total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t j = 0; j < count; ++j) {
      scores_[j] = vmath::exp(scores_[j] - update.shift);
      total += scores_[j];
    }
    if (update.rescale_factor != 1) {
      sum_[h] *= update.rescale_factor;
      multiply(out, update.rescale_factor);
    }
    maximum_[h] = update.maximum;
    sum_[h] += total;
  }

  const SoftmaxAttentionShape& shape_;
  const int64_t batch_, first_, heads_;
  const Stored *const k_, *const v_;
  const int64_t k_stride_, v_stride_, capacity_;
  T maximum_[kMaxHeads], sum_[kMaxHeads];
  T scores_[kBlock];
  int64_t rows_[kBlock];
};

// Calls f(batch, first head, number of heads) for groups of heads that share a head of keys, until all heads
// of all sequences are processed, in parallel. `work` is the number of multiply-adds of a sequence.
template <class F>
void for_each_head_group(const SoftmaxAttentionShape& s, int64_t work, F&& f) {
  constexpr int64_t kMinWorkPerThread = 1 << 15;
  const int64_t largest =
      s.pattern.differs_by_head() ? 1 : std::min(QueryAttention<float>::kMaxHeads, s.head_group);
  const int64_t grain = std::max<int64_t>(kMinWorkPerThread * s.heads / std::max<int64_t>(work, 1), 1);
  parallel_for(s.batch * s.heads, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin, count = 0; i < end; i += count) {
      const int64_t head = i % s.heads;
      count = std::min({largest, s.head_group - head % s.head_group, end - i});
      f(i / s.heads, head, count);
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
  for_each_head_group(s, work, [&](int64_t batch, int64_t first, int64_t heads) {
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
