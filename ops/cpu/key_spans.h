// A map from keys to the columns of a block of scores in sparse attention. If no query of the block attends
// to a tile of keys, the tile has no columns.
#pragma once

#include <algorithm>

#include "ops/cpu/tile_product.h"
#include "ops/kernels/key_pattern.h"

namespace tapeformer::cpu {

// Columns [slot, slot + count) of a block of scores belong to the keys [key, key + count). `key`, `slot` and
// `count` are multiples of the number of columns of a tile.
struct KeySpan {
  int64_t key = 0, slot = 0, count = 0;
  int64_t column(int64_t position) const { return position - key + slot; }
};

// The columns of a span that a tile of rows uses. A row contains the scores of one query. The columns [begin,
// end) contain all keys to which a query of the tile attends. `begin` and `padded_end` are multiples of the
// vector length, and the rows have weights in all columns of [begin, padded_end). The weight is zero if the
// query does not attend to the key.
struct ScoreColumns {
  int64_t begin = 0, end = 0, padded_end = 0;
  bool is_full = false;  // all rows attend to all keys of [begin, padded_end)
  bool is_empty() const { return begin >= end; }
};

// Divides the scores of at most kQueries queries into blocks of kKeys columns, and visits one block at a
// time. The columns of a block are divided into spans of keys.
template <class T, int64_t kQueries, int64_t kKeys>
class KeySpans {
  // for_each_key_tile() divides each span into tiles of kTileRows keys. If the number of keys is not a
  // multiple of kTileRows, the last tile extends beyond the span, into a gap of kGap columns that no key
  // uses.
  static constexpr bool kAligned = kLanes<T> % kTileRows == 0;
  static constexpr int64_t kGap = kAligned ? 0 : kTileColumns<T>, kMargin = kAligned ? 0 : kTileRows;
  static constexpr int64_t kMaxSpans = kKeys / kTileColumns<T>;
  static constexpr int64_t kMaxTiles = (kQueries + kTileRows - 1) / kTileRows;

 public:
  // Prepares to visit the blocks of the queries [query, query + queries).
  void start_queries(const AttendedKeys& attended, int64_t query, int64_t queries) {
    attended_ = &attended;
    query_ = query;
    query_count_ = queries;
    next_key_ = 0;
  }
  // Finds the keys of the next block. Returns false if there is no next block.
  bool find_next_block() {
    span_count_ = 0;
    for (int64_t slot = 0; slot < kKeys;) {
      const PositionRun run = attended_->find_keys(query_, query_ + query_count_, next_key_);
      if (run.is_empty()) break;
      const int64_t begin = run.begin / kTileColumns<T> * kTileColumns<T>;
      const bool continues =
          span_count_ > 0 && begin == spans_[span_count_ - 1].key + spans_[span_count_ - 1].count;
      if (!continues && span_count_ > 0) slot += kGap;
      if (slot >= kKeys) break;
      const int64_t count = std::min(tile_columns<T>(run.end - begin), kKeys - slot);
      if (continues)
        spans_[span_count_ - 1].count += count;
      else
        spans_[span_count_++] = {begin, slot, count};
      slot += count;
      next_key_ = begin + count;
    }
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t tile = 0; tile * kTileRows < query_count_; ++tile)
        columns_[tile][s] = find_tile_columns(tile, spans_[s]);
    return span_count_ > 0;
  }

  // Calls f(span, first row, columns) for each span and each tile of rows that attends to the span.
  template <class F>
  void for_each_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t i = 0; i < query_count_; i += kTileRows)
        if (const ScoreColumns& columns = columns_[i / kTileRows][s]; !columns.is_empty())
          f(spans_[s], i, columns);
  }
  // Calls f(first row, first key, first column) for each tile of kTileRows x kTileColumns<T> scores that
  // contains columns of [begin, end) in the ScoreColumns of its rows.
  template <class F>
  void for_each_score_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t j = spans_[s].slot; j < spans_[s].slot + spans_[s].count; j += kTileColumns<T>)
        for (int64_t i = 0; i < query_count_; i += kTileRows)
          if (const ScoreColumns& columns = columns_[i / kTileRows][s];
              j < columns.end && j + kTileColumns < T >> columns.begin)
            f(i, spans_[s].key + j - spans_[s].slot, j);
  }
  // Calls f(span, columns) for each span of keys to which a row in the tile of row i attends. `columns` is
  // the range of score columns that the tile reads in this span.
  template <class F>
  void for_each_span(int64_t i, F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      if (const ScoreColumns& columns = columns_[i / kTileRows][s]; !columns.is_empty())
        f(spans_[s], columns);
  }
  // Calls f(begin, end) for each range of columns in [columns.begin, columns.padded_end) to which row i does
  // not attend.
  template <class F>
  void for_each_masked_range(int64_t i, const KeySpan& span, const ScoreColumns& columns, F&& f) const {
    const int64_t query = query_ + i;
    // Columns after the span belong to keys of another span.
    const int64_t last = std::min(columns.padded_end, span.slot + span.count);
    int64_t masked = columns.is_full ? columns.padded_end : columns.begin;
    while (masked < columns.padded_end) {
      const PositionRun run = attended_->find_keys(query, query + 1, masked - span.slot + span.key);
      const bool is_last = run.is_empty() || span.column(run.begin) >= last;
      const int64_t end = is_last ? columns.padded_end : span.column(run.begin);
      if (masked < end) f(masked, end);
      masked = is_last ? columns.padded_end : std::min(span.column(run.end), last);
    }
  }
  // Calls f(first key, first column, first row, end row) for each tile of kTileRows keys and each group of
  // adjacent row tiles. All row tiles of a group have weights for the tile of keys.
  template <class F>
  void for_each_key_tile(F&& f) const {
    for (int64_t s = 0; s < span_count_; ++s)
      for (int64_t j = spans_[s].slot; j < spans_[s].slot + spans_[s].count; j += kTileRows)
        for (int64_t i = 0; i < query_count_;) {
          while (i < query_count_ && !has_weights(i, s, j)) i += kTileRows;
          const int64_t first = i;
          while (i < query_count_ && has_weights(i, s, j)) i += kTileRows;
          if (first < query_count_)
            f(spans_[s].key + j - spans_[s].slot, j, first, std::min(i, query_count_));
        }
  }

 private:
  // Returns whether the tile of row i has weights for the tile of keys at column j of span s.
  bool has_weights(int64_t i, int64_t s, int64_t j) const {
    const ScoreColumns& columns = columns_[i / kTileRows][s];
    return columns.begin <= j && j < columns.end && j + kTileRows <= columns.padded_end;
  }
  ScoreColumns find_tile_columns(int64_t tile, const KeySpan& span) const {
    const int64_t first = query_ + tile * kTileRows,
                  end = query_ + std::min((tile + 1) * kTileRows, query_count_);
    const int64_t last_key = span.key + span.count;
    PositionRun run = attended_->find_keys(first, end, span.key);
    if (run.begin >= last_key) return {};
    const int64_t begin = span.column(run.begin);
    int64_t after = run.end;
    while (after < last_key && (run = attended_->find_keys(first, end, after)).begin < last_key)
      after = run.end;
    after = span.column(std::min(after, last_key));
    ScoreColumns columns{std::max(span.slot, (begin - kMargin) / kLanes<T> * kLanes<T>), after,
                         std::min(round_up_to_vector<T>(after + kMargin), span.slot + span.count + kGap)};
    const int64_t first_key = columns.begin - span.slot + span.key;
    const int64_t end_key = first_key + columns.padded_end - columns.begin;
    columns.is_full = columns.padded_end <= span.slot + span.count;
    for (int64_t query = first; query < end && columns.is_full; ++query) {
      run = attended_->find_keys(query, query + 1, first_key);
      columns.is_full = run.begin == first_key && run.end >= end_key;
    }
    return columns;
  }

  const AttendedKeys* attended_ = nullptr;
  int64_t query_ = 0, query_count_ = 0, next_key_ = 0, span_count_ = 0;
  KeySpan spans_[kMaxSpans];
  ScoreColumns columns_[kMaxTiles][kMaxSpans];
};

}  // namespace tapeformer::cpu
