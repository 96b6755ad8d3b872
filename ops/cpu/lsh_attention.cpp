#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "ops/cpu/lsh_heads.h"
#include "ops/kernels/online_softmax.h"

namespace tapeformer::cpu {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// The inputs and the result of one head. The result is accumulated over the rounds.
template <class T>
struct ForwardHead {
  ForwardHead(const LshAttentionShape& s, Arena& arena)
      : rows(allocate_rows<T, 3>(arena, s.length, {s.dim, s.value_dim, s.value_dim})) {
    for (T** per_position : {&maximum, &sum}) *per_position = arena.allocate<T>(s.length);
  }

  std::array<PositionRows<T>, 3> rows;  // q, v, out
  T *maximum, *sum;  // (length,): maximum of the scores so far, and sum of exp(score - maximum)
};

template <class T>
class LshForward : public LshWindow<T> {
  using Base = LshWindow<T>;
  using Base::capacity_;
  using Base::current_;
  using Base::dropout_;
  using Base::kQueriesPerBlock;
  using Base::previous_;
  using Base::score_stride_;
  using Base::scores_;
  using Base::shape_;
  using typename Base::Half;
  using typename Base::Int;
  using typename Base::Range;

 public:
  LshForward(const LshAttentionShape& shape, const LshDropoutTable<T>& dropout, const ForwardHead<T>& head,
             T* log_sums)
      : Base(shape, dropout, head.rows[0], head.rows[1]), running_(head), log_sums_(log_sums) {}

  void take(Arena& arena) {
    this->allocate_window(arena);
    for (T*& columns : value_columns_) columns = arena.allocate<T>(capacity_ * this->padded_value_dim());
    result_ = arena.allocate<T>(kQueriesPerBlock * this->padded_value_dim());
    for (T** per_row : {&maximum_, &sum_}) *per_row = arena.allocate<T>(kQueriesPerBlock);
  }

  // Computes the attention of chunks [begin, end) in a round, and adds it to the result of the head.
  void run(int64_t example, int64_t head, const LshOrder& order, int64_t round, int64_t begin, int64_t end) {
    this->select_head(example, head, order);
    this->for_each_chunk_pair(
        order, round, begin, end,
        [&](Half& half, int64_t half_round, int64_t chunk) { load_chunk(half, half_round, chunk); },
        [&](int64_t) {
          for (int64_t i = 0; i < current_->count; i += kQueriesPerBlock)
            block(i, std::min(kQueriesPerBlock, current_->count - i));
        });
  }

 private:
  T* columns_of(const Half& half) const { return value_columns_[&half - this->halves_]; }

  void load_chunk(Half& half, int64_t round, int64_t chunk) {
    this->gather_chunk(half, round, chunk);
    constexpr int64_t kWidth = kTileColumns<T>;
    T* const columns = columns_of(half);
    for (int64_t i = 0; i < half.count; ++i)
      pack_row_in_column_panels(this->v_row(half.key_positions[i]), shape_.value_dim, i, capacity_, columns);
    // Sets the rows after the last value to 0. Matrix products multiply these rows by weights of 0, and the
    // result would be NaN if one of these rows contained NaN.
    for (int64_t m = 0; m < this->padded_value_dim(); m += kWidth)
      std::fill(columns + m * capacity_ + half.count * kWidth, columns + (m + kWidth) * capacity_, T{0});
  }

  // Computes the results of queries [first, first + count) of the chunk.
  void block(int64_t first, int64_t count) {
    for (int64_t i = 0; i < count; i += kTileRows) {
      const Range range = this->find_column_range(first + i, first + i + kTileRows);
      if (!range.is_empty())
        this->compute_score_tile(
            current_->queries + (first + i) * shape_.dim, shape_.dim, range,
            [](const Half& half) { return half.key_panels; }, scores_ + i * score_stride_);
    }
    for (int64_t i = 0; i < count; ++i) {
      const int64_t tile = (first + i) / kTileRows * kTileRows;
      prefetch(first + i);
      const Range range = this->find_column_range(tile, tile + kTileRows);
      if (shape_.causal)
        probabilities<true>(first + i, i, range);
      else
        probabilities<false>(first + i, i, range);
    }
    for (int64_t i = count; i < round_up_to_tile_rows(count); ++i)
      std::fill_n(scores_ + i * score_stride_, score_stride_, T{0});
    std::fill_n(result_, round_up_to_tile_rows(count) * this->padded_value_dim(), T{0});
    for (int64_t i = 0; i < count; i += kTileRows) {
      const Range range = this->find_column_range(first + i, first + i + kTileRows);
      if (!range.is_empty())
        this->add_weighted_columns(
            scores_ + i * score_stride_, range, this->padded_value_dim(), capacity_,
            [this](const Half& half) { return columns_of(half); }, result_ + i * this->padded_value_dim());
    }
    for (int64_t i = 0; i < count; ++i)
      if (shape_.average_rounds)
        add_mean(current_->key_positions[first + i], i);
      else
        merge(current_->key_positions[first + i], i);
  }

  // Prefetches the memory for the result of query i, and the inputs of query i of the next chunk.
  void prefetch(int64_t i) {
    prefetch_row(running_.rows[2].row(current_->key_positions[i]), shape_.value_dim);
    this->prefetch_next_slot(i);
  }

  // Replaces row `row` of scores_, the scores of query i, by unnormalized attention weights after dropout.
  // Stores the sum of the weights before dropout in sum_[row].
  //
  // If normalize_duplicates is true, the weight of a key is divided by the number of times that the query
  // attends to the key in all rounds.
  template <bool kCausal>
  void probabilities(int64_t i, int64_t row, Range range) {
    T* const scores = scores_ + row * score_stride_;
    Vector<T> largest = Vector<T>{} - kInfinity<T>;
    this->template for_each_key_vector<kCausal>(
        i, range, [&](const Half&, int64_t, int64_t column, Vector<Int> seen) {
          const Vector<T> x = seen ? load(scores + column) : Vector<T>{} - kInfinity<T>;
          store(scores + column, x);
          largest = x > largest ? x : largest;
        });
    const T maximum = reduce_max(largest);
    const T shift = maximum == -kInfinity<T> ? T{0} : maximum;
    const T* const multipliers = dropout_.row(i);
    Vector<T> total{};
    auto exponentials = [&](auto&& weighted) {
      this->template for_each_key_vector<kCausal>(
          i, range, [&](const Half& half, int64_t j, int64_t column, Vector<Int> seen) {
            Vector<T> p = weighted(half, j, vmath::exp_nonpositive(load(scores + column) - shift));
            p = seen ? p : Vector<T>{};
            store(scores + column, multipliers ? p * load(multipliers + column) : p);
            total += p;
          });
    };
    if (shape_.normalize_duplicates) {
      this->find_cells(i);
      exponentials(
          [&](const Half& half, int64_t j, Vector<T> p) { return p / this->count_multiplicities(half, j); });
    } else {
      exponentials([](const Half&, int64_t, Vector<T> p) { return p; });
    }
    maximum_[row] = maximum;
    sum_[row] = sum(total);
  }

  // Adds row `row` of result_ to the result of `position`. Before the addition, the row and the result are
  // rescaled to the larger of their maximum scores, as in an online softmax. In the last round, the result is
  // divided by the sum of the weights of all rounds. If the query attends to no key in any round, the result
  // is the row of v at `position`.
  void merge(int32_t position, int64_t row) {
    T* const out = running_.rows[2].row(position);
    const T* const result = result_ + row * this->padded_value_dim();
    const bool first = current_->round == 0, last = current_->round == shape_.rounds - 1;
    const T before = first ? -kInfinity<T> : running_.maximum[position];
    const OnlineSoftmaxUpdate<T> update = update_online_softmax(before, maximum_[row]);
    const T maximum = update.maximum;
    T keep = update.rescale_factor, add = std::exp(maximum_[row] - update.shift);
    const T total = (first ? T{0} : keep * running_.sum[position]) + add * sum_[row];
    running_.maximum[position] = maximum;
    running_.sum[position] = total;
    if (last) {
      log_sums_[this->compute_log_sum_index(position, 0)] =
          total == 0 ? kInfinity<T> : maximum + std::log(total);
      if (total == 0) {
        std::copy_n(this->v_row(position), shape_.value_dim, out);
        return;
      }
      keep /= total;
      add /= total;
    }
    if (first)
      for (int64_t m = 0; m < shape_.value_dim; ++m) out[m] = add * result[m];
    else
      for (int64_t m = 0; m < shape_.value_dim; ++m) out[m] = keep * out[m] + add * result[m];
  }

  // Divides row `row` of result_ by sum_[row] and by the number of rounds, and adds the quotient to the
  // result of `position`. If the query attends to no key in this round, the row of v at `position`, divided
  // by the number of rounds, is added instead.
  void add_mean(int32_t position, int64_t row) {
    T* const out = running_.rows[2].row(position);
    const bool alone = sum_[row] == 0;
    const T* const result = alone ? this->v_row(position) : result_ + row * this->padded_value_dim();
    const T factor = 1 / (static_cast<T>(shape_.rounds) * (alone ? T{1} : sum_[row]));
    if (current_->round == 0)
      for (int64_t m = 0; m < shape_.value_dim; ++m) out[m] = factor * result[m];
    else
      for (int64_t m = 0; m < shape_.value_dim; ++m) out[m] += factor * result[m];
    log_sums_[this->compute_log_sum_index(position, current_->round)] =
        alone ? kInfinity<T> : maximum_[row] + std::log(sum_[row]);
  }

  const ForwardHead<T> running_;
  T* const log_sums_;
  T* value_columns_[2] = {};               // packed values, one array per half of the window
  T* result_ = nullptr;                    // (kQueriesPerBlock, padded_value_dim)
  T *maximum_ = nullptr, *sum_ = nullptr;  // one element per row of the block
};

}  // namespace

template <class S>
void lsh_attention_forward(Backend, const LshAttentionShape& s, AttentionRows<const S> q,
                           AttentionRows<const S> v, const int32_t* buckets, S* out, Compute<S>* log_sums) {
  using T = Compute<S>;
  const AttentionRows<S> target = make_contiguous_rows(out, s.length, s.heads, s.value_dim);
  std::fill_n(log_sums, s.batch * s.heads * s.log_sum_round_count() * s.length, kInfinity<T>);
  const LshDropoutTable<T> dropout(s);
  for_each_lsh_head<ForwardHead<T>>(
      s, [&](const ForwardHead<T>& rows) { return LshForward<T>(s, dropout, rows, log_sums); }, buckets,
      [&](int64_t example, int64_t head, const LshOrder& order, const ForwardHead<T>& own,
          auto&& for_segments) {
        const int64_t valid = s.valid_length(example);
        parallel_for_each_position(valid, [&](int64_t i) {
          convert_elements(q.row(example, i, head), s.dim, own.rows[0].row(i));
          convert_elements(v.row(example, i, head), s.value_dim, own.rows[1].row(i));
        });
        for (int64_t round = 0; round < s.rounds; ++round)
          for_segments([&](LshForward<T>& window, int64_t, int64_t begin, int64_t end) {
            window.run(example, head, order, round, begin, end);
          });
        parallel_for_each_position(s.length, [&](int64_t i) {
          S* const row = target.row(example, i, head);
          if (i < valid)
            convert_elements(own.rows[2].row(i), s.value_dim, row);
          else
            std::fill_n(row, s.value_dim, S{});
        });
      });
}

template <class T>
struct LshForwardKernels {
  inline static const FunctionInstances all{&lsh_attention_forward<T>};
};
template struct LshForwardKernels<float>;
template struct LshForwardKernels<double>;
template struct LshForwardKernels<BFloat16>;

}  // namespace tapeformer::cpu
