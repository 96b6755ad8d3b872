// Blocks of scores in sparse attention. A block of scores has columns only for the tiles of keys to which at
// least one query of the block attends.
#pragma once

#include <algorithm>

#include "ops/cpu/tile_product.h"
#include "ops/kernels/key_pattern.h"

namespace tapeformer::cpu {

// A range of adjacent keys and the columns of these keys in a block of scores. The columns [first_column,
// first_column + count) belong to the keys [first_key, first_key + count). All members are multiples of
// kTileColumns.
struct KeySpan {
  int64_t first_key = 0, first_column = 0, count = 0;
  int64_t column(int64_t position) const { return position - first_key + first_column; }
};

// The score columns that a tile of queries uses. Each row of scores belongs to one query, and each column
// belongs to one key. Keys outside the columns [begin, end) are masked for all queries of the tile. Attention
// weights are stored in the columns [begin, padded_end), and the weights of masked keys are 0. `begin` and
// `padded_end` are multiples of kColumnStep of KeyBlockIterator.
struct ScoreColumns {
  int64_t begin = 0, end = 0, padded_end = 0;
  bool is_full = false;  // no row has a masked key in the columns [begin, padded_end)
  bool is_empty() const { return begin >= end; }
};

// Divides the scores of at most kQueries queries into blocks of kKeys columns, and visits one block at a
// time. The columns of a block are divided into spans of keys. A tile has kRows queries or kRows keys. The
// columns that a tile of queries uses begin and end at multiples of kColumnStep.
template <class T, int64_t kQueries, int64_t kKeys, int64_t kRows, int64_t kColumnStep>
class KeyBlockIterator {
  // If kColumnStep is not a multiple of kRows, the last tile of keys can extend beyond the end of a span, and
  // adjacent spans are therefore separated by a gap of kGap unused columns.
  static constexpr bool kAligned = kColumnStep % kRows == 0;
  static constexpr int64_t kGap = kAligned ? 0 : kTileColumns<T>, kMargin = kAligned ? 0 : kRows;
  static constexpr int64_t kMaxSpans = kKeys / kTileColumns<T>;
  static constexpr int64_t kMaxTiles = (kQueries + kRows - 1) / kRows;

 public:
  // Prepares to visit the blocks of the queries [first_query, first_query + query_count).
  void set_queries(const AttendedKeys& attended, int64_t first_query, int64_t query_count) {
    attended_ = &attended;
    first_query_ = first_query;
    query_count_ = query_count;
    next_key_ = 0;
  }
  // Finds the keys of the next block. Returns false if there is no next block.
  bool find_next_block() {
    span_count_ = 0;
    for (int64_t column = 0; column < kKeys;) {
      const PositionRun run = attended_->find_keys(first_query_, first_query_ + query_count_, next_key_);
      if (run.is_empty()) break;
      const int64_t begin = run.begin / kTileColumns<T> * kTileColumns<T>;
      const bool continues =
          span_count_ > 0 && begin == spans_[span_count_ - 1].first_key + spans_[span_count_ - 1].count;
      if (!continues && span_count_ > 0) column += kGap;
      if (column >= kKeys) break;
      const int64_t count = std::min(round_up_to_tile_columns<T>(run.end - begin), kKeys - column);
      if (continues)
        spans_[span_count_ - 1].count += count;
      else
        spans_[span_count_++] = {begin, column, count};
      column += count;
      next_key_ = begin + count;
    }
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t tile = 0; tile * kRows < query_count_; ++tile)
        columns_[tile][s] = find_tile_columns(tile, spans_[s]);
    return span_count_ > 0;
  }

  // Calls f(span, first row, columns) for each span and each tile of rows that attends to the span.
  template <class F>
  void for_each_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t i = 0; i < query_count_; i += kRows)
        if (const ScoreColumns& columns = columns_[i / kRows][s]; !columns.is_empty())
          f(spans_[s], i, columns);
  }
  // Calls f(first row, first key, first column) for each tile of kRows x kTileColumns<T> scores. Skips
  // tiles outside the ScoreColumns of their rows.
  template <class F>
  void for_each_score_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t j = spans_[s].first_column; j < spans_[s].first_column + spans_[s].count;
           j += kTileColumns<T>)
        for (int64_t i = 0; i < query_count_; i += kRows)
          if (const ScoreColumns& columns = columns_[i / kRows][s];
              j < columns.end && j + kTileColumns < T >> columns.begin)
            f(i, spans_[s].first_key + j - spans_[s].first_column, j);
  }
  // Calls f(span, columns) for each span of keys to which the tile of queries that contains row i attends.
  template <class F>
  void for_each_span(int64_t i, F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      if (const ScoreColumns& columns = columns_[i / kRows][s]; !columns.is_empty()) f(spans_[s], columns);
  }
  // Calls f(begin, end) for each masked range of columns of row i in [columns.begin, columns.padded_end).
  template <class F>
  void for_each_masked_range(int64_t i, const KeySpan& span, const ScoreColumns& columns, F&& f) const {
    const int64_t query = first_query_ + i;
    // The unused columns after a span of keys contain no scores.
    const int64_t end_column = std::min(columns.padded_end, span.first_column + span.count);
    int64_t masked_begin = columns.is_full ? columns.padded_end : columns.begin;
    while (masked_begin < columns.padded_end) {
      const PositionRun run =
          attended_->find_keys(query, query + 1, masked_begin - span.first_column + span.first_key);
      const bool is_last = run.is_empty() || span.column(run.begin) >= end_column;
      const int64_t end = is_last ? columns.padded_end : span.column(run.begin);
      if (masked_begin < end) f(masked_begin, end);
      masked_begin = is_last ? columns.padded_end : std::min(span.column(run.end), end_column);
    }
  }
  // Calls f(first key, first column, first row, end row) for each tile of kRows keys and each contiguous
  // range of rows that have weights for these keys.
  template <class F>
  void for_each_key_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t j = spans_[s].first_column; j < spans_[s].first_column + spans_[s].count; j += kRows)
        for (int64_t i = 0; i < query_count_;) {
          while (i < query_count_ && !has_weights(i, s, j)) i += kRows;
          const int64_t first = i;
          while (i < query_count_ && has_weights(i, s, j)) i += kRows;
          if (first < query_count_)
            f(spans_[s].first_key + j - spans_[s].first_column, j, first, std::min(i, query_count_));
        }
  }

 private:
  // Returns whether the tile of queries that contains row i has weights for the tile of keys that begins at
  // column j of span s.
  bool has_weights(int64_t i, int64_t s, int64_t j) const {
    const ScoreColumns& columns = columns_[i / kRows][s];
    return columns.begin <= j && j < columns.end && j + kRows <= columns.padded_end;
  }
  ScoreColumns find_tile_columns(int64_t tile, const KeySpan& span) const {
    const int64_t first = first_query_ + tile * kRows,
                  end = first_query_ + std::min((tile + 1) * kRows, query_count_);
    const int64_t span_end_key = span.first_key + span.count;
    PositionRun run = attended_->find_keys(first, end, span.first_key);
    if (run.begin >= span_end_key) return {};
    const int64_t begin = span.column(run.begin);
    int64_t run_end = run.end;
    while (run_end < span_end_key && (run = attended_->find_keys(first, end, run_end)).begin < span_end_key)
      run_end = run.end;
    const int64_t end_column = span.column(std::min(run_end, span_end_key));
    ScoreColumns columns{std::max(span.first_column, (begin - kMargin) / kColumnStep * kColumnStep),
                         end_column,
                         std::min((end_column + kMargin + kColumnStep - 1) / kColumnStep * kColumnStep,
                                  span.first_column + span.count + kGap)};
    const int64_t first_key = columns.begin - span.first_column + span.first_key;
    const int64_t end_key = first_key + columns.padded_end - columns.begin;
    columns.is_full = columns.padded_end <= span.first_column + span.count;
    for (int64_t query = first; query < end && columns.is_full; ++query) {
      run = attended_->find_keys(query, query + 1, first_key);
      columns.is_full = run.begin == first_key && run.end >= end_key;
    }
    return columns;
  }

  const AttendedKeys* attended_ = nullptr;
  int64_t first_query_ = 0, query_count_ = 0, next_key_ = 0, span_count_ = 0;
  KeySpan spans_[kMaxSpans];
  ScoreColumns columns_[kMaxTiles][kMaxSpans];
};

}  // namespace tapeformer::cpu
