// LshWindow, the base class of the forward and backward passes of LSH attention. A window consists of a chunk
// and the chunk before it. A row of scores has `capacity` columns for the keys of the previous chunk,
// followed by `capacity` columns for the keys of the current chunk. `capacity` is the chunk length rounded up
// to a multiple of kTileColumns.
#pragma once

#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "core/cpu/dropout_bits.h"
#include "core/cpu/vector_math.h"
#include "core/scratch.h"
#include "ops/cpu/lsh_order.h"
#include "ops/cpu/lsh_rows.h"
#include "ops/cpu/tile_product.h"

namespace tapeformer::cpu {

// An integer type with the size of T, so that comparisons of integer vectors give masks for vectors of T.
template <class T>
using LaneInt = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;

// Number of chunks in a segment. A segment is the smallest part of a round that a thread processes. The
// number of chunks is constant, so that sums do not depend on the number of threads.
inline constexpr int64_t kChunksPerLshSegment = 16;

// Multiplies row i by factors[i] and packs the rows [0, count) in the layout of pack_rows() (tile_product.h).
// row(i) returns a pointer to the `dim` elements of row i.
template <class T, class Row>
void pack_gathered_rows(Row&& row, const T* factors, int64_t count, int64_t dim, T* panels) {
  constexpr int64_t kWidth = kTileColumns<T>, kSide = kLanes<T>;
  for (int64_t i = 0; i < round_up_to_tile_columns<T>(count); i += kSide) {
    T* const out = panels + i / kWidth * kWidth * dim + i % kWidth;
    const int64_t valid_rows = std::clamp<int64_t>(count - i, 0, kSide);
    const T* x[kSide];
    T factor[kSide];
    for (int64_t r = 0; r < kSide; ++r) {
      x[r] = valid_rows > 0 ? row(i + (r < valid_rows ? r : 0)) : nullptr;
      factor[r] = r < valid_rows ? factors[i + r] : T{0};
    }
    int64_t j = 0;
    for (; valid_rows == kSide && j + kSide <= dim; j += kSide) {
      Vector<T> block[kSide];
      for (int64_t r = 0; r < kSide; ++r) block[r] = load(x[r] + j) * factor[r];
      transpose(block);
      for (int64_t r = 0; r < kSide; ++r) store(out + (j + r) * kWidth, block[r]);
    }
    for (; j < dim; ++j)
      for (int64_t r = 0; r < kSide; ++r) out[j * kWidth + r] = r < valid_rows ? factor[r] * x[r][j] : T{0};
  }
}

// Packs x (dim,) as row i of a matrix with `capacity` rows, in the layout of pack_columns() (tile_product.h).
template <class T>
void pack_row_in_column_panels(const T* x, int64_t dim, int64_t i, int64_t capacity, T* panels) {
  constexpr int64_t kWidth = kTileColumns<T>, kSide = kLanes<T>;
  T* out = panels + i * kWidth;
  for (int64_t j = 0; j < dim; j += kWidth, out += capacity * kWidth) {
    if (dim - j >= kWidth) {
      store(out, load(x + j));
      store(out + kSide, load(x + j + kSide));
    } else {
      const int64_t remaining = dim - j;
      store(out, load_first(x + j, remaining));
      store(out + kSide, remaining > kSide ? load_first(x + j + kSide, remaining - kSide) : Vector<T>{});
    }
  }
}

// The data of one of the two chunks of an LshWindow.
template <class T>
struct LshWindowHalf {
  using Int = LaneInt<T>;
  int64_t count = 0, round = 0, chunk = 0;
  const int32_t* key_positions = nullptr;
  Int* positions = nullptr;  // `key_positions`, converted to Int
  // Cell codes of the keys (rounds, capacity). If normalize_duplicates is false, `codes` has only the row of
  // round `round`. Elements [count, capacity) of a row are LshOrder::kEmpty.
  Int* codes = nullptr;
  const Int* round_codes = nullptr;  // the row of `codes` for the round of this chunk
  T* queries = nullptr;              // (count, dim), padded with rows of zeros to a multiple of kTileRows
  // The key of a position is the query at the position, multiplied by scale / sqrt(|query|² + epsilon).
  // key_scales contains the factors scale / sqrt(|query|² + epsilon), and key_panels contains the keys,
  // packed by pack_gathered_rows().
  T* key_scales = nullptr;
  T* key_panels = nullptr;
};

// Dropout multipliers (chunk_length, 2 * capacity). Each multiplier is applied to the attention weight in the
// same row and column. All chunks use the same multipliers.
template <class T>
class LshDropoutTable {
 public:
  explicit LshDropoutTable(const LshAttentionShape& s)
      : capacity_(round_up_to_tile_columns<T>(s.chunk_length)),
        table_(s.dropout.is_active() ? s.chunk_length * 2 * capacity_ : 0) {
    const int64_t chunk = s.chunk_length;
    for (int64_t row = 0; row < (s.dropout.is_active() ? 2 * chunk : 0); ++row) {
      std::fill_n(table_.data() + row * capacity_, capacity_, T{0});
      compute_dropout_multipliers(s.dropout, row * chunk, chunk, table_.data() + row * capacity_);
    }
    active_ = s.dropout.is_active();
  }
  // Returns the multipliers of query i of a chunk, or nullptr if dropout is not active.
  const T* row(int64_t i) const { return active_ ? table_.data() + i * 2 * capacity_ : nullptr; }

 private:
  int64_t capacity_;
  Scratch<T> table_;
  bool active_ = false;
};

template <class T>
class LshWindow {
 public:
  using Int = LaneInt<T>;
  using Half = LshWindowHalf<T>;
  // Number of queries in a block of scores; a multiple of kTileRows.
  static constexpr int64_t kQueriesPerBlock = 96;

  LshWindow(const LshAttentionShape& shape, const LshDropoutTable<T>& dropout, PositionRows<const T> q,
            PositionRows<const T> v)
      : shape_(shape),
        dropout_(dropout),
        q_(q),
        v_(v),
        capacity_(round_up_to_tile_columns<T>(shape.chunk_length)),
        padded_capacity_(round_up_to_tile_rows(capacity_)),
        score_stride_(2 * capacity_ + 2 * kTileColumns<T>) {}
  LshWindow(const LshWindow&) = delete;
  LshWindow& operator=(const LshWindow&) = delete;

 protected:
  struct Range {
    int64_t begin, end;  // columns [begin, end)
    bool is_empty() const { return begin >= end; }
  };

  int64_t padded_dim() const { return round_up_to_tile_columns<T>(shape_.dim); }
  int64_t padded_value_dim() const { return round_up_to_tile_columns<T>(shape_.value_dim); }

  void allocate_window(Arena& arena) {
    for (Half& half : halves_) {
      half.positions = arena.allocate<Int>(capacity_);
      half.codes = arena.allocate<Int>(capacity_ * (shape_.normalize_duplicates ? shape_.rounds : 1));
      half.queries = arena.allocate<T>(padded_capacity_ * shape_.dim);
      half.key_scales = arena.allocate<T>(capacity_);
      half.key_panels = arena.allocate<T>(capacity_ * shape_.dim);
    }
    ranges_ = arena.allocate<Range>(padded_capacity_);
    scores_ = arena.allocate<T>(kQueriesPerBlock * score_stride_);
    for (Int** targets : {&query_codes_, &look_back_codes_, &look_back_rounds_})
      *targets = arena.allocate<Int>(shape_.rounds);
  }

  void select_head(int64_t example, int64_t head, const LshOrder& order) {
    example_ = example;
    head_ = head;
    order_ = &order;
  }
  const T* q_row(int32_t position) const { return q_.row(position); }
  const T* v_row(int32_t position) const { return v_.row(position); }

  int64_t compute_log_sum_index(int64_t position, int64_t round) const {
    return ((example_ * shape_.heads + head_) * shape_.log_sum_round_count() + round) * shape_.length +
           position;
  }

  void gather_chunk(Half& half, int64_t round, int64_t chunk) {
    half.round = round;
    half.chunk = chunk;
    half.count = order_->slot_count(chunk);
    half.key_positions = order_->positions(round, chunk);
    half.round_codes = half.codes + (shape_.normalize_duplicates ? round * capacity_ : 0);
    for (int64_t i = 0; i < half.count; ++i) {
      half.positions[i] = half.key_positions[i];
      const int32_t* const codes = order_->codes(half.key_positions[i]);
      if (!shape_.normalize_duplicates)
        half.codes[i] = codes[round];
      else
        for (int64_t r = 0; r < shape_.rounds; ++r) half.codes[r * capacity_ + i] = codes[r];
    }
    std::fill(half.positions + half.count, half.positions + capacity_, Int{0});
    for (int64_t r = 0; r < (shape_.normalize_duplicates ? shape_.rounds : 1); ++r)
      std::fill(half.codes + r * capacity_ + half.count, half.codes + (r + 1) * capacity_,
                Int{LshOrder::kEmpty});
    const T scale = static_cast<T>(shape_.scale), epsilon = static_cast<T>(shape_.epsilon);
    for (int64_t i = 0; i < half.count; ++i) {
      T* const row = half.queries + i * shape_.dim;
      std::copy_n(q_row(half.key_positions[i]), shape_.dim, row);
      half.key_scales[i] = scale / std::sqrt(dot(row, row, shape_.dim) + epsilon);
    }
    std::fill(half.queries + half.count * shape_.dim,
              half.queries + round_up_to_tile_rows(half.count) * shape_.dim, T{0});
    pack_gathered_rows([&](int64_t i) { return half.queries + i * shape_.dim; }, half.key_scales, half.count,
                       shape_.dim, half.key_panels);
  }

  // Calls visit(chunk) for the chunks [begin, end) of a round. During the call, current_ holds the chunk, and
  // previous_ holds the chunk before it. load(half, round, chunk) is called to gather the rows of a chunk in
  // `half`.
  template <class Load, class Visit>
  void for_each_chunk_pair(const LshOrder& order, int64_t round, int64_t begin, int64_t end, Load&& load,
                           Visit&& visit) {
    const LshOrder::Chunk first = order.find_previous_chunk(round, begin);
    if (first.exists)
      load(*current_, first.round, first.chunk);
    else
      current_->count = 0;
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      std::swap(current_, previous_);
      load(*current_, round, chunk);
      compute_column_ranges();
      next_positions_ = chunk + 1 < order.chunk_count() ? order.positions(round, chunk + 1) : nullptr;
      next_count_ = next_positions_ ? order.slot_count(chunk + 1) : 0;
      visit(chunk);
    }
  }

  void prefetch_next_slot(int64_t i) const {
    if (i >= next_count_) return;
    __builtin_prefetch(order_->codes(next_positions_[i]));
    prefetch_row(q_row(next_positions_[i]), shape_.dim);
    prefetch_row(v_row(next_positions_[i]), shape_.value_dim);
  }

  // For each query, sets an element of ranges_ to a range of score columns that contains all keys to which
  // the query attends. The range can also contain other keys, which for_each_key_vector() masks.
  void compute_column_ranges() {
    const bool wrapped = current_->chunk == 0 && previous_->count > 0;
    if (shape_.across_buckets || wrapped) {
      const int64_t begin = previous_->count > 0 ? 0 : capacity_;
      std::fill_n(ranges_, current_->count, Range{begin, capacity_ + current_->count});
      return;
    }
    const Int* const codes = current_->round_codes;
    int64_t begin = capacity_;
    for (int64_t j = previous_->count - 1; j >= 0 && previous_->round_codes[j] == codes[0] - 1; --j)
      begin = j;
    for (int64_t i = 0; i < current_->count;) {
      int64_t end = i + 1;
      while (end < current_->count && codes[end] == codes[i]) ++end;
      if (i > 0) begin = capacity_ + i;
      for (; i < end; ++i) ranges_[i] = {begin, capacity_ + (shape_.causal ? i : end)};
    }
  }
  // Returns the smallest range of whole vectors that contains the ranges of queries [begin, end).
  Range find_column_range(int64_t begin, int64_t end) const {
    Range bounds{2 * capacity_, 0};
    for (int64_t i = begin; i < std::min(end, current_->count); ++i) {
      if (ranges_[i].is_empty()) continue;
      bounds.begin = std::min(bounds.begin, ranges_[i].begin);
      bounds.end = std::max(bounds.end, ranges_[i].end);
    }
    return {bounds.begin / kLanes<T> * kLanes<T>, round_up_to_vector<T>(bounds.end)};
  }

  // Computes scores = left * rightᵀ for a tile of kTileRows queries and the columns in `range`, which is
  // extended to whole tiles. `left` is (kTileRows, depth), and `right` has one row per key. panels(half)
  // returns the rows of `right` for the keys of `half`, packed by pack_gathered_rows().
  template <class Panels>
  void compute_score_tile(const T* left, int64_t depth, Range range, Panels&& panels, T* scores) {
    constexpr int64_t kWidth = kTileColumns<T>;
    for (int64_t j = range.begin / kWidth * kWidth; j < range.end; j += kWidth) {
      const T* const right =
          j < capacity_ ? panels(*previous_) + j * depth : panels(*current_) + (j - capacity_) * depth;
      compute_tile_product<Left::rows, false>(left, depth, right, depth, scores + j, score_stride_);
    }
  }
  // Adds the matrix product of `weights` and x to `result` (kTileRows, columns_width). Column j of `weights`
  // and row j of x belong to key j, and the product sums over the keys in `range`. columns(half) returns the
  // rows of x for the keys of `half`, packed by pack_row_in_column_panels(). `panel_rows` is the number of
  // rows of each panel.
  template <class Columns>
  void add_weighted_columns(const T* weights, Range range, int64_t columns_width, int64_t panel_rows,
                            Columns&& columns, T* result) {
    constexpr int64_t kWidth = kTileColumns<T>;
    auto add = [&](const T* packed, int64_t offset, int64_t begin, int64_t end) {
      if (begin >= end) return;
      for (int64_t m = 0; m < columns_width; m += kWidth)
        compute_tile_product<Left::rows, true>(weights + offset + begin, score_stride_,
                                               packed + m * panel_rows + begin * kWidth, end - begin,
                                               result + m, columns_width);
    };
    add(columns(*previous_), 0, range.begin, std::min(range.end, capacity_));
    add(columns(*current_), capacity_, std::max<int64_t>(range.begin - capacity_, 0), range.end - capacity_);
  }

  // Calls f(half, key, column, mask) for each vector of keys in `range`. `key` is the index in `half` of the
  // first key, and `column` is the score column of this key. `mask` selects the keys that query i attends to.
  template <bool kCausal, class F>
  void for_each_key_vector(int64_t i, Range range, F&& f) {
    const Int position = current_->positions[i];
    auto visit = [&](const Half& half, Int code, int64_t offset, int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; j += kLanes<T>) {
        const Vector<Int> key_positions = load(half.positions + j);
        const Vector<Int> same_cell = load(half.round_codes + j) == code;
        if constexpr (kCausal)
          f(half, j, offset + j, same_cell & (key_positions < position));
        else
          f(half, j, offset + j, same_cell & (key_positions != position));
      }
    };
    const auto code = current_->round_codes[i];
    visit(*previous_, order_->find_look_back_cell(current_->round, static_cast<int32_t>(code)).code, 0,
          range.begin, std::min(range.end, capacity_));
    visit(*current_, code, capacity_, std::max<int64_t>(range.begin - capacity_, 0), range.end - capacity_);
  }

  // Selects query i for the next calls of count_multiplicities().
  void find_cells(int64_t i) {
    if (!shape_.normalize_duplicates) return;
    for (int64_t r = 0; r < shape_.rounds; ++r) {
      query_codes_[r] = current_->codes[r * capacity_ + i];
      const LshOrder::Cell cell = order_->find_look_back_cell(r, static_cast<int32_t>(query_codes_[r]));
      look_back_codes_[r] = cell.code;
      look_back_rounds_[r] = cell.round;
    }
  }
  // For each key in [j, j + kLanes<T>) of `half`, returns how many times the query that find_cells() selected
  // attends to the key in all rounds.
  Vector<T> count_multiplicities(const Half& half, int64_t j) const {
    Vector<Int> count{};
    for (int64_t r = 0; r < shape_.rounds; ++r) {
      count -= load(half.codes + r * capacity_ + j) == query_codes_[r];
      count -= load(half.codes + look_back_rounds_[r] * capacity_ + j) == look_back_codes_[r];
    }
    return __builtin_convertvector(count, Vector<T>);
  }

  const LshAttentionShape& shape_;
  const LshDropoutTable<T>& dropout_;
  const PositionRows<const T> q_, v_;
  const int64_t capacity_;         // chunk_length rounded up to a multiple of kTileColumns
  const int64_t padded_capacity_;  // capacity_ rounded up to a multiple of kTileRows
  const int64_t score_stride_;
  int64_t example_ = 0, head_ = 0;
  const LshOrder* order_ = nullptr;
  Half halves_[2];
  // current_ is the chunk whose queries are processed.
  Half *current_ = &halves_[0], *previous_ = &halves_[1];
  Range* ranges_ = nullptr;  // column range of each query in current_
  T* scores_ = nullptr;      // (kQueriesPerBlock, score_stride_)
  Int *query_codes_ = nullptr, *look_back_codes_ = nullptr, *look_back_rounds_ = nullptr;
  const int32_t* next_positions_ = nullptr;  // positions of the next chunk
  int64_t next_count_ = 0;
};

}  // namespace tapeformer::cpu
