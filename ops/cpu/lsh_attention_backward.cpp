#include "core/base/instances.h"
#include "core/cpu/bfloat16.h"
#include "ops/cpu/lsh_heads.h"

namespace tapeformer::cpu {
namespace {

// Workspace of one head: copies of q, v and g, the sums of gq and gv over the rounds, the deltas, and the
// gradients that each segment contributes to the chunk before the segment.
template <class T>
struct BackwardHead {
  BackwardHead(const LshAttentionShape& s, Arena& arena)
      : rows(allocate_rows<T, 5>(arena, s.length, {s.dim, s.value_dim, s.value_dim, s.dim, s.value_dim})),
        deltas(arena.allocate<T>(s.length)),
        look_backs(arena.allocate<T>(segments(s) * look_back_size(s))) {}
  static int64_t segments(const LshAttentionShape& s) {
    return (s.length + kChunksPerLshSegment * s.chunk_length - 1) / (kChunksPerLshSegment * s.chunk_length);
  }
  static int64_t look_back_size(const LshAttentionShape& s) { return s.chunk_length * (s.dim + s.value_dim); }

  std::array<PositionRows<T>, 5> rows;  // q, v, g, gq, gv
  T* deltas;  // (length,) dot product of g and the attention result at each position
  // (segments, chunk_length, dim + value_dim): gradients of the queries and values of the chunk before each
  // segment.
  T* look_backs;
};

template <class T>
class LshBackward : public LshWindow<T> {
  using Base = LshWindow<T>;
  using Base::capacity_;
  using Base::current_;
  using Base::dropout_;
  using Base::kQueriesPerBlock;
  using Base::padded_capacity_;
  using Base::previous_;
  using Base::score_stride_;
  using Base::scores_;
  using Base::shape_;
  using typename Base::Half;
  using typename Base::Int;
  using typename Base::Range;

 public:
  LshBackward(const LshAttentionShape& shape, const LshDropoutTable<T>& dropout, const BackwardHead<T>& head,
              const T* log_sums)
      : Base(shape, dropout, head.rows[0], head.rows[1]), rows_of_(head), log_sums_(log_sums) {}

  void take(Arena& arena) {
    this->allocate_window(arena);
    for (Sums& sums : sums_) {
      sums.value_panels = arena.allocate<T>(capacity_ * shape_.value_dim);
      sums.query_columns = arena.allocate<T>(padded_capacity_ * this->padded_dim());
      for (T** rows : {&sums.gq, &sums.gk}) *rows = arena.allocate<T>(padded_capacity_ * this->padded_dim());
      sums.gv = arena.allocate<T>(padded_capacity_ * this->padded_value_dim());
    }
    g_rows_ = arena.allocate<T>(padded_capacity_ * shape_.value_dim);
    g_columns_ = arena.allocate<T>(padded_capacity_ * this->padded_value_dim());
    score_gradients_ = arena.allocate<T>(kQueriesPerBlock * score_stride_);
    ones_ = arena.allocate<T>(capacity_);
  }

  // Adds the gradients from chunks [begin, end) of a round, which form a segment, to gq and gv. Round 0
  // overwrites gq and gv. The gradients of the chunk before the segment are written to a look-back buffer,
  // because another thread can process that chunk at the same time.
  void run(int64_t example, int64_t head, const LshOrder& order, int64_t round, int64_t begin, int64_t end) {
    this->select_head(example, head, order);
    std::fill_n(ones_, capacity_, T{1});
    T* const look_back = look_back_of(begin);
    this->for_each_chunk_pair(
        order, round, begin, end,
        [&](Half& half, int64_t half_round, int64_t chunk) { load_chunk(half, half_round, chunk); },
        [&](int64_t chunk) {
          load_gradients();
          for (int64_t i = 0; i < current_->count; i += kQueriesPerBlock)
            block(i, std::min(kQueriesPerBlock, current_->count - i));
          finish(*previous_, chunk == begin ? look_back : nullptr);
        });
    finish(*current_, nullptr);
  }

  // Adds the look-back buffer of the segment that begins at chunk `begin` to gq and gv.
  void add_look_back_cell(const LshOrder& order, int64_t round, int64_t begin) {
    const LshOrder::Chunk chunk = order.find_previous_chunk(round, begin);
    if (!chunk.exists) return;
    const T* rows = look_back_of(begin);
    const int32_t* const positions = order.positions(chunk.round, chunk.chunk);
    for (int64_t i = 0; i < order.slot_count(chunk.chunk); ++i) {
      T *const gq = gq_row(positions[i]), *const gv = gv_row(positions[i]);
      for (int64_t d = 0; d < shape_.dim; ++d) gq[d] += *rows++;
      for (int64_t m = 0; m < shape_.value_dim; ++m) gv[m] += *rows++;
    }
  }

 private:
  // Packed operands and gradient sums of one chunk of the window, with rows padded to whole tiles.
  struct Sums {
    T *value_panels, *query_columns;
    T *gq, *gk, *gv;
  };
  Sums& sums_of(const Half& half) { return sums_[&half - this->halves_]; }
  const T* g_row(int32_t position) const { return rows_of_.rows[2].row(position); }
  T* gq_row(int32_t position) const { return rows_of_.rows[3].row(position); }
  T* gv_row(int32_t position) const { return rows_of_.rows[4].row(position); }
  T* look_back_of(int64_t first_chunk) const {
    return rows_of_.look_backs + first_chunk / kChunksPerLshSegment * BackwardHead<T>::look_back_size(shape_);
  }

  void load_chunk(Half& half, int64_t round, int64_t chunk) {
    this->gather_chunk(half, round, chunk);
    const Sums& sums = sums_of(half);
    constexpr int64_t kWidth = kTileColumns<T>;
    pack_gathered_rows([&](int64_t i) { return this->v_row(half.key_positions[i]); }, ones_, half.count,
                       shape_.value_dim, sums.value_panels);
    for (int64_t i = 0; i < half.count; ++i)
      pack_row_in_column_panels(half.queries + i * shape_.dim, shape_.dim, i, padded_capacity_,
                                sums.query_columns);
    // Sets the rows after the last query to 0. Matrix products multiply these rows by weights of 0, and the
    // result would be NaN if one of these rows contained NaN.
    for (int64_t m = 0; m < this->padded_dim(); m += kWidth)
      std::fill(sums.query_columns + m * padded_capacity_ + half.count * kWidth,
                sums.query_columns + (m + kWidth) * padded_capacity_, T{0});
    for (T* rows : {sums.gq, sums.gk}) std::fill_n(rows, padded_capacity_ * this->padded_dim(), T{0});
    std::fill_n(sums.gv, padded_capacity_ * this->padded_value_dim(), T{0});
  }

  void load_gradients() {
    for (int64_t i = 0; i < current_->count; ++i) {
      const T* const row = g_row(current_->key_positions[i]);
      std::copy_n(row, shape_.value_dim, g_rows_ + i * shape_.value_dim);
      pack_row_in_column_panels(row, shape_.value_dim, i, padded_capacity_, g_columns_);
    }
    std::fill(g_rows_ + current_->count * shape_.value_dim,
              g_rows_ + round_up_to_tile_rows(current_->count) * shape_.value_dim, T{0});
  }

  // Adds the gradients from queries [first, first + count) of the chunk to sums_.
  void block(int64_t first, int64_t count) {
    const int64_t tiles = round_up_to_tile_rows(count) / kTileRows;
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t i = t * kTileRows;
      tile_ranges_[t] = this->find_column_range(first + i, first + i + kTileRows);
      if (tile_ranges_[t].is_empty()) continue;
      this->compute_score_tile(
          current_->queries + (first + i) * shape_.dim, shape_.dim, tile_ranges_[t],
          [](const Half& half) { return half.key_panels; }, scores_ + i * score_stride_);
      this->compute_score_tile(
          g_rows_ + (first + i) * shape_.value_dim, shape_.value_dim, tile_ranges_[t],
          [this](const Half& half) { return sums_of(half).value_panels; },
          score_gradients_ + i * score_stride_);
    }
    for (int64_t row = 0; row < tiles * kTileRows; ++row) {
      if (row < count) prefetch(first + row);
      const Range range = row < count ? tile_ranges_[row / kTileRows] : Range{0, 0};
      if (shape_.causal)
        row_gradient<true>(first + row, row, range);
      else
        row_gradient<false>(first + row, row, range);
    }
    for (int64_t t = 0; t < tiles; ++t)
      if (!tile_ranges_[t].is_empty())
        this->add_weighted_columns(
            score_gradients_ + t * kTileRows * score_stride_, tile_ranges_[t], this->padded_dim(),
            padded_capacity_, [this](const Half& half) { return sums_of(half).query_columns; },
            sums_of(*current_).gq + (first + t * kTileRows) * this->padded_dim());
    add_for_keys(*previous_, 0, first, count);
    add_for_keys(*current_, capacity_, first, count);
  }

  void prefetch(int64_t i) {
    if (i < previous_->count) {
      prefetch_row(gq_row(previous_->key_positions[i]), shape_.dim);
      prefetch_row(gv_row(previous_->key_positions[i]), shape_.value_dim);
    }
    this->prefetch_next_slot(i);
    if (i < this->next_count_) prefetch_row(g_row(this->next_positions_[i]), shape_.value_dim);
  }

  // Updates row `row` of scores_ and score_gradients_, the row of query i of the chunk, in place. Each column
  // of the two arrays belongs to one key:
  //   scores_: the score is replaced by m * p.
  //   score_gradients_: d is replaced by p * (m * d - delta) * key_scale.
  // Here, p is the attention weight, m is the dropout multiplier, and d is the dot product of g and the
  // value. `delta` is the dot product of g and the attention result. If average_rounds is true, p includes
  // the factor 1 / rounds, and the attention result is the result of this round.
  template <bool kCausal>
  void row_gradient(int64_t i, int64_t row, Range range) {
    T* const scores = scores_ + row * score_stride_;
    T* const gradients = score_gradients_ + row * score_stride_;
    const int64_t position = i < current_->count ? current_->key_positions[i] : 0;
    const T log_sum =
        range.is_empty()
            ? T{0}
            : log_sums_[this->compute_log_sum_index(position, shape_.average_rounds ? current_->round : 0)];
    if (i < current_->count) add_alone(i, position);
    if (range.is_empty() || log_sum == std::numeric_limits<T>::infinity()) {
      std::fill_n(scores, score_stride_, T{0});
      std::fill_n(gradients, score_stride_, T{0});
      return;
    }
    for (T* const x : {scores, gradients}) {
      std::fill_n(x, range.begin, T{0});
      std::fill(x + range.end, x + score_stride_, T{0});
    }
    if (shape_.average_rounds)
      mean_row<kCausal>(i, range, log_sum, scores, gradients);
    else
      softmax_row<kCausal>(i, range, log_sum, rows_of_.deltas[position], scores, gradients);
  }

  // Adds the gradient of v for a query i that attends to no key. The result of this query is the row of v at
  // `position`, so g is added to the same row of gv. If average_rounds is true, the result of each round has
  // the weight 1 / rounds.
  void add_alone(int64_t i, int64_t position) {
    if (log_sums_[this->compute_log_sum_index(position, shape_.average_rounds ? current_->round : 0)] !=
        std::numeric_limits<T>::infinity())
      return;
    if (!shape_.average_rounds && current_->round > 0) return;
    const T share = shape_.average_rounds ? 1 / static_cast<T>(shape_.rounds) : T{1};
    T* const gv = sums_of(*current_).gv + i * this->padded_value_dim();
    for (int64_t m = 0; m < shape_.value_dim; ++m) gv[m] += share * g_rows_[i * shape_.value_dim + m];
  }

  template <bool kCausal>
  void softmax_row(int64_t i, Range range, T log_sum, T delta, T* scores, T* gradients) {
    const T* const multipliers = dropout_.row(i);
    auto pass = [&](T shift, auto&& weighted) {
      this->template for_each_key_vector<kCausal>(
          i, range, [&](const Half& half, int64_t j, int64_t column, Vector<Int> seen) {
            Vector<T> p = weighted(half, j, vmath::exp_nonpositive(load(scores + column) - shift));
            p = seen ? p : Vector<T>{};
            Vector<T> g_v = load(gradients + column);
            if (multipliers) g_v *= load(multipliers + column);
            const Vector<T> ds = p * (g_v - delta) * load(half.key_scales + j);
            store(scores + column, multipliers ? p * load(multipliers + column) : p);
            store(gradients + column, seen ? ds : Vector<T>{});
          });
    };
    if (!shape_.normalize_duplicates) {
      pass(log_sum, [](const Half&, int64_t, Vector<T> p) { return p; });
      return;
    }
    // A query can attend to the same key n times, where n is at most max_multiplicity. Each occurrence of the
    // key has the weight exp(score - log_sum) / n. The weight is at most 1, so score - log_sum is at most
    // log(max_multiplicity). exp_nonpositive() requires arguments of at most 0. Therefore,
    // log(max_multiplicity) is subtracted from the argument, and the result is multiplied by
    // max_multiplicity.
    const T max_multiplicity = static_cast<T>(2 * shape_.rounds);
    this->find_cells(i);
    pass(log_sum + std::log(max_multiplicity), [&](const Half& half, int64_t j, Vector<T> p) {
      return max_multiplicity * p / this->count_multiplicities(half, j);
    });
  }

  template <bool kCausal>
  void mean_row(int64_t i, Range range, T log_sum, T* scores, T* gradients) {
    const T share = 1 / static_cast<T>(shape_.rounds);
    const T* const multipliers = dropout_.row(i);
    Vector<T> total{};
    this->template for_each_key_vector<kCausal>(
        i, range, [&](const Half&, int64_t, int64_t column, Vector<Int> seen) {
          Vector<T> p = share * vmath::exp_nonpositive(load(scores + column) - log_sum);
          p = seen ? p : Vector<T>{};
          if (multipliers) store(gradients + column, load(gradients + column) * load(multipliers + column));
          store(scores + column, p);
          total += seen ? p * load(gradients + column) : Vector<T>{};
        });
    const T delta = sum(total) / share;
    this->template for_each_key_vector<kCausal>(
        i, range, [&](const Half& half, int64_t j, int64_t column, Vector<Int> seen) {
          const Vector<T> ds =
              load(scores + column) * (load(gradients + column) - delta) * load(half.key_scales + j);
          if (multipliers) store(scores + column, load(scores + column) * load(multipliers + column));
          store(gradients + column, seen ? ds : Vector<T>{});
        });
  }

  // Adds the gradients from queries [first, first + count) to gk and gv of `half`, whose score columns begin
  // at `offset`.
  void add_for_keys(const Half& half, int64_t offset, int64_t first, int64_t count) {
    const Sums& sums = sums_of(half);
    const int64_t tiles = round_up_to_tile_rows(count) / kTileRows;
    for (int64_t j = 0; j < half.count; j += kTileRows) {
      auto overlaps = [&](int64_t t) {
        return tile_ranges_[t].begin < offset + j + kTileRows && tile_ranges_[t].end > offset + j;
      };
      int64_t begin = 0, end = tiles;
      while (begin < end && !overlaps(begin)) ++begin;
      while (end > begin && !overlaps(end - 1)) --end;
      if (begin == end) continue;
      begin *= kTileRows;
      end = std::min(end * kTileRows, count);
      const int64_t weights = begin * score_stride_ + offset + j;
      add_tiles(scores_ + weights, g_columns_, first + begin, end - begin, this->padded_value_dim(),
                sums.gv + j * this->padded_value_dim());
      add_tiles(score_gradients_ + weights, sums_of(*current_).query_columns, first + begin, end - begin,
                this->padded_dim(), sums.gk + j * this->padded_dim());
    }
  }
  void add_tiles(const T* weights, const T* columns, int64_t first, int64_t depth, int64_t columns_width,
                 T* result) {
    constexpr int64_t kWidth = kTileColumns<T>;
    for (int64_t m = 0; m < columns_width; m += kWidth)
      compute_tile_product<Left::columns, true>(weights, score_stride_,
                                                columns + m * padded_capacity_ + first * kWidth, depth,
                                                result + m, columns_width);
  }

  // Adds the gradient sums of `half` to gq and gv, or overwrites gq and gv in round 0. If `look_back` is not
  // null, writes the sums to `look_back` instead.
  //
  // The key of a query q is k = q scale / n, where n² = |q|² + epsilon. The gradient of q through k is
  //   gk - q (q . gk) / n²,
  // where gk is the gradient of k, already multiplied by scale / n.
  void finish(const Half& half, T* look_back) {
    const Sums& sums = sums_of(half);
    const T scale = static_cast<T>(shape_.scale);
    const bool set = half.round == 0 && !look_back;
    for (int64_t i = 0; i < half.count; ++i) {
      const T *const q = half.queries + i * shape_.dim, *const gk = sums.gk + i * this->padded_dim();
      const T inverse = half.key_scales[i] / scale;
      const T along = inverse * inverse * dot(q, gk, shape_.dim);
      const T* const own = sums.gq + i * this->padded_dim();
      const T* const value = sums.gv + i * this->padded_value_dim();
      T *gq = gq_row(half.key_positions[i]), *gv = gv_row(half.key_positions[i]);
      if (look_back) {
        gq = look_back + i * (shape_.dim + shape_.value_dim);
        gv = gq + shape_.dim;
      }
      if (set || look_back) {
        for (int64_t d = 0; d < shape_.dim; ++d) gq[d] = own[d] + (gk[d] - along * q[d]);
        std::copy_n(value, shape_.value_dim, gv);
      } else {
        for (int64_t d = 0; d < shape_.dim; ++d) gq[d] += own[d] + (gk[d] - along * q[d]);
        for (int64_t m = 0; m < shape_.value_dim; ++m) gv[m] += value[m];
      }
    }
  }

  const BackwardHead<T> rows_of_;
  const T* const log_sums_;
  Sums sums_[2] = {};
  T* g_columns_ = nullptr;        // g of the chunk, packed in panels of padded_capacity_ rows
  T* ones_ = nullptr;             // (capacity_,)
  T* g_rows_ = nullptr;           // (padded_capacity_, value_dim)
  T* score_gradients_ = nullptr;  // (kQueriesPerBlock, score_stride_)
  // Score columns that each tile of queries uses.
  Range tile_ranges_[Base::kQueriesPerBlock / kTileRows] = {};
};

}  // namespace

template <class S>
void lsh_attention_backward(Backend, const LshAttentionShape& s, AttentionRows<const S> q,
                            AttentionRows<const S> v, const int32_t* buckets, const S* out,
                            const Compute<S>* log_sums, AttentionRows<const S> g, S* gq, S* gv) {
  using T = Compute<S>;
  const AttentionRows<const S> result = make_contiguous_rows(out, s.length, s.heads, s.value_dim);
  const AttentionRows<S> to_q = make_contiguous_rows(gq, s.length, s.heads, s.dim);
  const AttentionRows<S> to_v = make_contiguous_rows(gv, s.length, s.heads, s.value_dim);
  using Head = BackwardHead<T>;
  const LshDropoutTable<T> dropout(s);
  for_each_lsh_head<Head>(
      s, [&](const Head& rows) { return LshBackward<T>(s, dropout, rows, log_sums); }, buckets,
      [&](int64_t example, int64_t head, const LshOrder& order, const Head& rows, auto&& for_segments) {
        const int64_t valid = s.valid_length(example);
        parallel_for_each_position(valid, [&](int64_t i) {
          const S* const from = g.row(example, i, head);
          convert_elements(q.row(example, i, head), s.dim, rows.rows[0].row(i));
          convert_elements(v.row(example, i, head), s.value_dim, rows.rows[1].row(i));
          convert_elements(from, s.value_dim, rows.rows[2].row(i));
          rows.deltas[i] = dot(from, result.row(example, i, head), s.value_dim);
        });
        for (int64_t round = 0; round < s.rounds; ++round) {
          for_segments([&](LshBackward<T>& window, int64_t, int64_t begin, int64_t end) {
            window.run(example, head, order, round, begin, end);
          });
          LshBackward<T> sums(s, dropout, rows, log_sums);
          for (int64_t chunk = 0; chunk < order.chunk_count(); chunk += kChunksPerLshSegment)
            sums.add_look_back_cell(order, round, chunk);
        }
        parallel_for_each_position(s.length, [&](int64_t i) {
          S *const gq_row = to_q.row(example, i, head), *const gv_row = to_v.row(example, i, head);
          if (i < valid) {
            convert_elements(rows.rows[3].row(i), s.dim, gq_row);
            convert_elements(rows.rows[4].row(i), s.value_dim, gv_row);
          } else {
            std::fill_n(gq_row, s.dim, S{});
            std::fill_n(gv_row, s.value_dim, S{});
          }
        });
      });
}

template <class T>
struct LshBackwardKernels {
  inline static const FunctionInstances all{&lsh_attention_backward<T>};
};
template struct LshBackwardKernels<float>;
template struct LshBackwardKernels<double>;
template struct LshBackwardKernels<BFloat16>;

}  // namespace tapeformer::cpu
