// Sparse patterns of attention. A pattern is a union of sets of (query, key) pairs. The functions find_keys()
// and find_queries() return runs, which are ranges of consecutive positions. Kernels compute only the tiles
// of scores that overlap a run, and need no mask of shape (length, length).
#pragma once

#include "ops/kernels/key_window.h"

namespace tapeformer {

// The consecutive positions [begin, end) of keys or of queries. kUnbounded is larger than all positions. An
// empty run begins and ends at kUnbounded.
struct PositionRun {
  static constexpr int64_t kUnbounded = KeyWindow::kUnlimited;
  int64_t begin = kUnbounded, end = kUnbounded;

  TAPEFORMER_HOST_DEVICE bool is_empty() const { return begin == kUnbounded; }
  // Returns the positions of [begin, end) that are at least `from`.
  TAPEFORMER_HOST_DEVICE static PositionRun clip(int64_t begin, int64_t end, int64_t from) {
    if (begin < from) begin = from;
    return begin < end ? PositionRun{begin, end} : PositionRun{};
  }
  // Returns the first run of the union of two sets. `a` and `b` are the first runs of the two sets.
  TAPEFORMER_HOST_DEVICE static PositionRun merge_first(PositionRun a, PositionRun b) {
    const PositionRun first = b.begin < a.begin ? b : a, second = b.begin < a.begin ? a : b;
    return {first.begin, second.begin <= first.end && second.end > first.end ? second.end : first.end};
  }
};

// Each set of (query, key) pairs has the functions find_keys() and find_queries(). The runs that the
// functions return can extend beyond the last position of the sequence.
//
// find_keys(first, end, from) returns the first run of keys, at or after position `from`, to which the
// queries [first, end) attend. If end - first > 1, the run can contain additional keys.
//
// find_queries(first, end, from) returns the first run of queries, at or after position `from`, that attend
// to the keys [first, end). The run can contain additional queries.

// The set of (query, key) pairs whose key is in the window of the query. The window can be empty.
struct WindowKeys {
  KeyWindow window;

  TAPEFORMER_HOST_DEVICE bool is_empty() const { return window.max_causal_key_count() + window.after <= 0; }
  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    if (is_empty()) return {};
    return PositionRun::clip(window.begin(first), window.end(end - 1), from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    if (is_empty()) return {};
    return PositionRun::clip(window.first_query(first), window.end_query(end - 1), from);
  }
};

// The set of pairs whose distance is a multiple of `step`. The key is at most `before` tokens before the
// query, or at most `after` tokens after the query. If `step` is 0, the set is empty.
struct DilatedKeys {
  int64_t step = 0, before = 0, after = 0;

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    if (step == 0) return {};
    const PositionRun all = PositionRun::clip(first - before, end + after, from < 0 ? 0 : from);
    if (end - first > 1 || all.is_empty()) return all;
    const int64_t remainder = (all.begin - first) % step;
    const int64_t key = all.begin + (remainder > 0 ? step - remainder : -remainder);
    return PositionRun::clip(key, key < all.end ? key + 1 : key, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    return step == 0 ? PositionRun{} : PositionRun::clip(first - after, end + before, from);
  }
};

// The set of pairs whose key is one of the last `count` keys of a block of `period` keys. The query is
// arbitrary. If `period` is 0, the set is empty.
struct PeriodicKeys {
  int64_t period = 0, count = 0;

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t, int64_t, int64_t from) const {
    if (period == 0) return {};
    const int64_t end = (from / period + 1) * period;
    return PositionRun::clip(end - count, end, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    return find_keys(0, 1, first).begin < end ? PositionRun{from, PositionRun::kUnbounded} : PositionRun{};
  }
};

// The set of pairs in which the query or the key is a global token. The global tokens are the positions
// before prefix_end and the positions from suffix_begin to the end of the sequence.
struct GlobalTokens {
  int64_t prefix_end = 0, suffix_begin = PositionRun::kUnbounded;

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    if (first < prefix_end || end > suffix_begin) return {from, PositionRun::kUnbounded};
    return from < prefix_end ? PositionRun{from, prefix_end}
                             : PositionRun::clip(suffix_begin, PositionRun::kUnbounded, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    return find_keys(first, end, from);
  }
};

// The set of (query, key) pairs that a table of blocks defines. Queries and keys are divided into blocks of
// `block_size` tokens. Row r of the table holds the indices of the key blocks to which the queries of block r
// attend. Negative indices are ignored. `block_indices` is (heads, rows, width). If all heads share the
// table, head_stride is 0, and `block_indices` is (rows, width). If `width` is 0, the set is empty.
struct BlockTableKeys {
  const int32_t* block_indices = nullptr;
  int64_t block_size = 1, rows = 0, width = 0, head_stride = 0;

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    PositionRun run;
    for (int64_t row = first / block_size; row < rows && row * block_size < end; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t key = block_indices[row * width + i] * block_size;
        if (key >= 0) run = PositionRun::merge_first(run, PositionRun::clip(key, key + block_size, from));
      }
    return run;
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    for (int64_t row = from / block_size; width > 0 && row < rows; ++row)
      for (int64_t i = 0; i < width; ++i) {
        const int64_t key = block_indices[row * width + i] * block_size;
        if (key >= 0 && key < end && key + block_size > first)
          return PositionRun::clip(row * block_size, (row + 1) * block_size, from);
      }
    return {};
  }
};

// The set of pairs whose key is in a rectangle around the query. The tokens are an image in raster order with
// `width` tokens per row. The windows row_window and column_window contain the rows and columns of the
// rectangle. If `width` is 0, the set is empty.
struct GridKeys {
  int64_t width = 0;
  KeyWindow row_window = {}, column_window = {};

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    if (width == 0) return {};
    const int64_t top = first / width, bottom = (end - 1) / width;
    const bool is_single_row = top == bottom;
    return find_run_in_rectangle(row_window.begin(top), row_window.end(bottom),
                                 is_single_row ? column_window.begin(first % width) : 0,
                                 is_single_row ? column_window.end((end - 1) % width) : width, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    if (width == 0) return {};
    const int64_t top = first / width, bottom = (end - 1) / width;
    const bool is_single_row = top == bottom;
    return find_run_in_rectangle(row_window.first_query(top), row_window.end_query(bottom),
                                 is_single_row ? column_window.first_query(first % width) : 0,
                                 is_single_row ? column_window.end_query((end - 1) % width) : width, from);
  }

 private:
  // Returns the first run, at or after position `from`, in the rows [top, bottom) and columns [left, right)
  // of the image. If the rectangle has all columns, its rows form one run.
  TAPEFORMER_HOST_DEVICE PositionRun find_run_in_rectangle(int64_t top, int64_t bottom, int64_t left,
                                                           int64_t right, int64_t from) const {
    if (right > width) right = width;
    if (left == 0 && right == width) return PositionRun::clip(top * width, bottom * width, from);
    int64_t row = from / width;
    if (from % width >= right) ++row;
    if (row < top) row = top;
    if (row >= bottom) return {};
    return PositionRun::clip(row * width + left, row * width + right, from);
  }
};

// The union of a window and of the sets in `dilated`, `periodic`, `global`, `table` and `grid`, which are
// empty by default. The default window contains all pairs. If the window is limited, the number of queries
// must be equal to the number of keys. If the window is not limited, the other sets have no effect.
struct KeyPattern {
  static constexpr bool kHasGaps = true;  // true: the keys of a query may form several runs
  KeyWindow window = {};
  DilatedKeys dilated = {};
  PeriodicKeys periodic = {};
  GlobalTokens global = {};
  BlockTableKeys table = {};
  GridKeys grid = {};
  // If true, heads with even indices use only the window, and heads with odd indices use only the other sets.
  bool alternate_heads = false;

  TAPEFORMER_HOST_DEVICE static KeyWindow make_empty_window() {
    return {.block_size = 1, .before = 0, .after = -1};
  }

  TAPEFORMER_HOST_DEVICE bool is_limited() const { return window.is_limited(); }
  // Returns whether all sets except the window are empty.
  TAPEFORMER_HOST_DEVICE bool has_only_window() const {
    return dilated.step == 0 && periodic.period == 0 && table.width == 0 && grid.width == 0 &&
           global.prefix_end == 0 && global.suffix_begin == PositionRun::kUnbounded;
  }
  bool differs_by_head() const { return alternate_heads || table.head_stride > 0; }
  // Returns the maximum number of positions from the first key of a query to the query, both included. In
  // causal attention, a query attends to at most this number of keys. If the number of positions is not
  // limited, the result is at least PositionRun::kUnbounded.
  int64_t max_causal_key_count() const {
    return has_only_window() ? window.max_causal_key_count() : PositionRun::kUnbounded;
  }

  // Returns the pattern of one head, in which alternate_heads and head_stride are already applied.
  TAPEFORMER_HOST_DEVICE KeyPattern get_head_pattern(int64_t head) const {
    KeyPattern pattern = *this;
    if (alternate_heads && head % 2 == 0) pattern = KeyPattern{window};
    if (alternate_heads && head % 2 == 1) pattern.window = make_empty_window();
    if (pattern.table.block_indices) pattern.table.block_indices += head * table.head_stride;
    return pattern;
  }

  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    if (!is_limited()) return {from, PositionRun::kUnbounded};
    const PositionRun run = WindowKeys{window}.find_keys(first, end, from);
    return has_only_window() ? run
                             : PositionRun::merge_first(run, find_keys_outside_window(first, end, from));
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    if (!is_limited()) return {from, PositionRun::kUnbounded};
    const PositionRun run = WindowKeys{window}.find_queries(first, end, from);
    return has_only_window() ? run
                             : PositionRun::merge_first(run, find_queries_outside_window(first, end, from));
  }

 private:
  // find_keys_outside_window() and find_queries_outside_window() are find_keys() and find_queries() of the
  // union of all sets except the window. The functions are not inlined, because inlined code needs more
  // registers and more compile time in each kernel.
  TAPEFORMER_HOST_DEVICE TAPEFORMER_NOINLINE PositionRun find_keys_outside_window(int64_t first, int64_t end,
                                                                                  int64_t from) const {
    PositionRun run = dilated.find_keys(first, end, from);
    run = PositionRun::merge_first(run, periodic.find_keys(first, end, from));
    run = PositionRun::merge_first(run, global.find_keys(first, end, from));
    run = PositionRun::merge_first(run, table.find_keys(first, end, from));
    return PositionRun::merge_first(run, grid.find_keys(first, end, from));
  }
  TAPEFORMER_HOST_DEVICE TAPEFORMER_NOINLINE PositionRun find_queries_outside_window(int64_t first,
                                                                                     int64_t end,
                                                                                     int64_t from) const {
    PositionRun run = dilated.find_queries(first, end, from);
    run = PositionRun::merge_first(run, periodic.find_queries(first, end, from));
    run = PositionRun::merge_first(run, global.find_queries(first, end, from));
    run = PositionRun::merge_first(run, table.find_queries(first, end, from));
    return PositionRun::merge_first(run, grid.find_queries(first, end, from));
  }
};

// The pattern of dense attention, which contains all pairs. The struct has all functions of KeyPattern that
// kernels call. A kernel instance for AllKeys needs fewer registers than an instance for KeyPattern.
struct AllKeys {
  static constexpr bool kHasGaps = false;

  TAPEFORMER_HOST_DEVICE static bool is_limited() { return false; }
  TAPEFORMER_HOST_DEVICE static PositionRun find_keys(int64_t, int64_t, int64_t from) {
    return {from, PositionRun::kUnbounded};
  }
  TAPEFORMER_HOST_DEVICE static PositionRun find_queries(int64_t, int64_t, int64_t from) {
    return {from, PositionRun::kUnbounded};
  }
};

// The (query, key) pairs that attention computes for one sequence and one head. The set contains the pairs of
// `pattern` with key < valid_keys. If `causal` is true, the set contains only the pairs that also have
// key <= query + key_length - query_length.
template <class Pattern>
struct AttendedPairs {
  Pattern pattern;
  int64_t query_length = 0, key_length = 0, valid_keys = 0;
  bool causal = false;

  // Returns the end of the range [0, end) of keys that valid_keys and `causal` allow for `query`. If
  // query >= query_length, returns 0. For queries less than query_length, the result does not decrease as
  // `query` increases.
  TAPEFORMER_HOST_DEVICE int64_t key_end(int64_t query) const {
    if (query >= query_length) return 0;
    int64_t end = valid_keys;
    if (causal && query + 1 + key_length - query_length < end) end = query + 1 + key_length - query_length;
    return end < 0 ? 0 : end;
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_keys(int64_t first, int64_t end, int64_t from) const {
    const PositionRun run = pattern.find_keys(first, end, from);
    const int64_t max_end = key_end(end - 1);
    return PositionRun::clip(run.begin, run.end < max_end ? run.end : max_end, from);
  }
  TAPEFORMER_HOST_DEVICE PositionRun find_queries(int64_t first, int64_t end, int64_t from) const {
    if (first >= valid_keys) return {};
    if (causal && first - (key_length - query_length) > from) from = first - (key_length - query_length);
    const PositionRun run = pattern.find_queries(first, end, from);
    return PositionRun::clip(run.begin, run.end < query_length ? run.end : query_length, from);
  }
  TAPEFORMER_HOST_DEVICE bool contains(int64_t query, int64_t key) const {
    return find_keys(query, query + 1, key).begin == key;
  }
};
using AttendedKeys = AttendedPairs<KeyPattern>;

}  // namespace tapeformer
