// Sparse patterns of attention. A pattern is a union of sets of (query, key) pairs. Its functions return runs
// of consecutive keys of a query. Kernels skip the tiles of scores between the runs, and no array of size
// length x length is needed.
#pragma once

#include "ops/kernels/key_window.h"

namespace tapeformer {

// Consecutive positions [begin, end). An empty run begins at kEnd, after all positions.
struct PositionRun {
  static constexpr int64_t kEnd = KeyWindow::kUnlimited;
  int64_t begin = kEnd, end = kEnd;

  TAPEFORMER_HOST_DEVICE bool is_empty() const { return begin == kEnd; }
  // Returns the positions of [begin, end) that are at least `from`.
  TAPEFORMER_HOST_DEVICE static PositionRun clipped(int64_t begin, int64_t end, int64_t from) {
    if (begin < from) begin = from;
    return begin < end ? PositionRun{begin, end} : PositionRun{};
  }
  // Returns the first run of the union of two sets, from the first runs of both.
  TAPEFORMER_HOST_DEVICE static PositionRun first_of(PositionRun a, PositionRun b) {
    const PositionRun first = b.begin < a.begin ? b : a, other = b.begin < a.begin ? a : b;
    return {first.begin, other.begin <= first.end && other.end > first.end ? other.end : first.end};
  }
};

// Each of the sets below has two functions:
//   keys(first, end, from)     returns the first run, at or after `from`, of the keys that the queries of
//                              [first, end) attend to. For several queries, runs may contain more keys.
//   queries(first, end, from)  returns the first run, at or after `from`, of the queries that attend to keys
//                              of [first, end). Runs may contain more queries.
// Runs may extend beyond the last position.

// The keys in a window. The window may be empty.
struct WindowKeys {
  KeyWindow window;

  TAPEFORMER_HOST_DEVICE bool is_empty() const { return window.span() + window.after <= 0; }
  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    if (is_empty()) return {};
    return PositionRun::clipped(window.begin(first), window.end(end - 1), from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    if (is_empty()) return {};
    return PositionRun::clipped(window.first_query(first), window.end_query(end - 1), from);
  }
};

// The keys at distances that are multiples of `step`, at most `before` tokens before and `after` tokens after
// a query. Step 0 is the empty set.
struct DilatedKeys {
  int64_t step = 0, before = 0, after = 0;

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    if (step == 0) return {};
    const PositionRun all = PositionRun::clipped(first - before, end + after, from < 0 ? 0 : from);
    if (end - first > 1 || all.is_empty()) return all;
    const int64_t remainder = (all.begin - first) % step;
    const int64_t key = all.begin + (remainder > 0 ? step - remainder : -remainder);
    return PositionRun::clipped(key, key < all.end ? key + 1 : key, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    return step == 0 ? PositionRun{} : PositionRun::clipped(first - after, end + before, from);
  }
};

// The last `count` keys of every block of `period` keys. Period 0 is the empty set.
struct PeriodicKeys {
  int64_t period = 0, count = 0;

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t, int64_t, int64_t from) const {
    if (period == 0) return {};
    const int64_t end = (from / period + 1) * period;
    return PositionRun::clipped(end - count, end, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    return keys(0, 1, first).begin < end ? PositionRun{from, PositionRun::kEnd} : PositionRun{};
  }
};

// Global tokens: the positions before `first_end` and the positions from `last_begin` to the end. Global
// tokens attend to all keys, and all queries attend to global tokens.
struct GlobalTokens {
  int64_t first_end = 0, last_begin = PositionRun::kEnd;

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    if (first < first_end || end > last_begin) return {from, PositionRun::kEnd};
    return from < first_end ? PositionRun{from, first_end}
                            : PositionRun::clipped(last_begin, PositionRun::kEnd, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    return keys(first, end, from);
  }
};

// A table of key blocks for each block of queries: `blocks` is (heads, rows, width), or (rows, width) with
// head_stride = 0. A block has `block` tokens; row r holds the numbers of the key blocks to which the queries
// of block r attend. Negative numbers are ignored. Width 0 is the empty set.
struct TableKeys {
  const int32_t* blocks = nullptr;
  int64_t block = 1, rows = 0, width = 0, head_stride = 0;

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    PositionRun run;
    for (int64_t row = first / block; row < rows && row * block < end; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t key = blocks[row * width + i] * block;
        if (key >= 0) run = PositionRun::first_of(run, PositionRun::clipped(key, key + block, from));
      }
    return run;
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    for (int64_t row = from / block; width > 0 && row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t key = blocks[row * width + i] * block;
        if (key >= 0 && key < end && key + block > first)
          return PositionRun::clipped(row * block, (row + 1) * block, from);
      }
    return {};
  }
};

// The keys in a rectangle of an image in raster order, with `width` tokens per row. The rectangle is the
// product of a window of rows and a window of columns. Width 0 is the empty set.
struct GridKeys {
  int64_t width = 0;
  KeyWindow rows = {}, columns = {};

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    if (width == 0) return {};
    const int64_t top = first / width, bottom = (end - 1) / width;
    const bool one_row = top == bottom;
    return in_rectangle(rows.begin(top), rows.end(bottom), one_row ? columns.begin(first % width) : 0,
                        one_row ? columns.end((end - 1) % width) : width, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    if (width == 0) return {};
    const int64_t top = first / width, bottom = (end - 1) / width;
    const bool one_row = top == bottom;
    return in_rectangle(rows.first_query(top), rows.end_query(bottom),
                        one_row ? columns.first_query(first % width) : 0,
                        one_row ? columns.end_query((end - 1) % width) : width, from);
  }

 private:
  // Returns the first run, at or after `from`, of a rectangle of the image. Whole rows form one run.
  TAPEFORMER_HOST_DEVICE PositionRun in_rectangle(int64_t top, int64_t bottom, int64_t left, int64_t right,
                                                  int64_t from) const {
    if (right > width) right = width;
    if (left == 0 && right == width) return PositionRun::clipped(top * width, bottom * width, from);
    int64_t row = from / width;
    if (from % width >= right) ++row;
    if (row < top) row = top;
    if (row >= bottom) return {};
    return PositionRun::clipped(row * width + left, row * width + right, from);
  }
};

// The union of a window and other sets of keys. The default is all keys. A pattern with a limited window
// requires queries and keys of equal length. If the window is not limited, the other sets have no effect.
struct KeyPattern {
  static constexpr bool kHasGaps = true;  // whether the keys of a query may have several runs
  KeyWindow window = {};
  DilatedKeys dilated = {};
  PeriodicKeys periodic = {};
  GlobalTokens global = {};
  TableKeys table = {};
  GridKeys grid = {};
  // Heads with even numbers use the window only, and heads with odd numbers the union of the other sets.
  bool alternate_heads = false;

  // Returns a window without keys.
  TAPEFORMER_HOST_DEVICE static KeyWindow no_window() { return {.block = 1, .before = 0, .after = -1}; }

  TAPEFORMER_HOST_DEVICE bool is_limited() const { return window.is_limited(); }
  TAPEFORMER_HOST_DEVICE bool is_window() const {
    return dilated.step == 0 && periodic.period == 0 && table.width == 0 && grid.width == 0 &&
           global.first_end == 0 && global.last_begin == PositionRun::kEnd;
  }
  bool differs_by_head() const { return alternate_heads || table.head_stride > 0; }
  // Returns the maximum number of keys from the first key of a causal query to the query itself, or kEnd if
  // there is no bound.
  int64_t span() const { return is_window() ? window.span() : PositionRun::kEnd; }

  // Returns the pattern of a head.
  TAPEFORMER_HOST_DEVICE KeyPattern of_head(int64_t head) const {
    KeyPattern pattern = *this;
    if (alternate_heads && head % 2 == 0) pattern = KeyPattern{window};
    if (alternate_heads && head % 2 == 1) pattern.window = no_window();
    if (pattern.table.blocks) pattern.table.blocks += head * table.head_stride;
    return pattern;
  }

  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    if (!is_limited()) return {from, PositionRun::kEnd};
    const PositionRun run = WindowKeys{window}.keys(first, end, from);
    return is_window() ? run : PositionRun::first_of(run, keys_outside_window(first, end, from));
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    if (!is_limited()) return {from, PositionRun::kEnd};
    const PositionRun run = WindowKeys{window}.queries(first, end, from);
    return is_window() ? run : PositionRun::first_of(run, queries_outside_window(first, end, from));
  }

 private:
  // Returns the first run of positions that belong to any set except the window. The function is not inlined,
  // because copies in each kernel would need more registers and more compile time.
  TAPEFORMER_HOST_DEVICE TAPEFORMER_NOINLINE PositionRun keys_outside_window(int64_t first, int64_t end,
                                                                             int64_t from) const {
    PositionRun run = dilated.keys(first, end, from);
    run = PositionRun::first_of(run, periodic.keys(first, end, from));
    run = PositionRun::first_of(run, global.keys(first, end, from));
    run = PositionRun::first_of(run, table.keys(first, end, from));
    return PositionRun::first_of(run, grid.keys(first, end, from));
  }
  TAPEFORMER_HOST_DEVICE TAPEFORMER_NOINLINE PositionRun queries_outside_window(int64_t first, int64_t end,
                                                                                int64_t from) const {
    PositionRun run = dilated.queries(first, end, from);
    run = PositionRun::first_of(run, periodic.queries(first, end, from));
    run = PositionRun::first_of(run, global.queries(first, end, from));
    run = PositionRun::first_of(run, table.queries(first, end, from));
    return PositionRun::first_of(run, grid.queries(first, end, from));
  }
};

// The pattern of dense attention. Kernels for this pattern need fewer registers than for a KeyPattern.
struct AllKeys {
  static constexpr bool kHasGaps = false;

  TAPEFORMER_HOST_DEVICE static bool is_limited() { return false; }
  TAPEFORMER_HOST_DEVICE static PositionRun keys(int64_t, int64_t, int64_t from) {
    return {from, PositionRun::kEnd};
  }
  TAPEFORMER_HOST_DEVICE static PositionRun queries(int64_t, int64_t, int64_t from) {
    return {from, PositionRun::kEnd};
  }
};

// The (query, key) pairs of attention in one sequence and head: the pairs of a pattern without masked keys.
template <class Pattern>
struct AttendedKeysOf {
  Pattern pattern;
  int64_t query_length = 0, key_length = 0, valid_keys = 0;
  bool causal = false;

  // Returns one more than the last key that a query may attend to. Returns 0 if the query is at or after
  // query_length. Before query_length, the result does not decrease from one query to the next.
  TAPEFORMER_HOST_DEVICE int64_t limit(int64_t query) const {
    if (query >= query_length) return 0;
    int64_t end = valid_keys;
    if (causal && query + 1 + key_length - query_length < end) end = query + 1 + key_length - query_length;
    return end < 0 ? 0 : end;
  }
  // keys() and queries() return the first run of keys or queries, like the functions of the sets above.
  TAPEFORMER_HOST_DEVICE PositionRun keys(int64_t first, int64_t end, int64_t from) const {
    const PositionRun run = pattern.keys(first, end, from);
    const int64_t last = limit(end - 1);
    return PositionRun::clipped(run.begin, run.end < last ? run.end : last, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun queries(int64_t first, int64_t end, int64_t from) const {
    if (first >= valid_keys) return {};
    if (causal && first - (key_length - query_length) > from) from = first - (key_length - query_length);
    const PositionRun run = pattern.queries(first, end, from);
    return PositionRun::clipped(run.begin, run.end < query_length ? run.end : query_length, from);
  }
  TAPEFORMER_HOST_DEVICE bool contains(int64_t query, int64_t key) const {
    return keys(query, query + 1, key).begin == key;
  }
};
using AttendedKeys = AttendedKeysOf<KeyPattern>;

}  // namespace tapeformer
