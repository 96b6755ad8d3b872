// Key patterns for tests of attention. Each case has a key pattern and a function contains(head, query, key)
// that returns whether the pattern contains a key.
#pragma once

#include <cstdlib>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "ops/softmax_attention.h"

namespace tapeformer::test {

struct PatternCase {
  std::string name;
  KeyPattern pattern;
  Tensor key_blocks;
  // The definition: returns whether query i attends to key j in head h if there is no causal mask.
  std::function<bool(int64_t h, int64_t i, int64_t j)> contains;

  SoftmaxAttentionOptions options(bool causal) const {
    return {.causal = causal, .pattern = pattern, .key_blocks = key_blocks};
  }
};

// Returns an int32 table (heads, rows, width) of random indices of key blocks. The index -1 means no block.
inline Tensor random_blocks(int64_t heads, int64_t rows, int64_t width) {
  const Tensor table = Tensor::zeros({heads, rows, width}, DType::int32);
  uint32_t state = 12345;
  for (int64_t i = 0; i < table.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    table.data<int32_t>()[i] = static_cast<int32_t>(state >> 8) % static_cast<int32_t>(rows + 1) - 1;
  }
  return table;
}

inline bool is_near(int64_t i, int64_t j, int64_t distance) {
  return std::abs(i - j) <= distance;
}

// Returns patterns whose keys are regularly spaced. `unit` is the number of tokens of a block or a window.
inline std::vector<PatternCase> spaced_pattern_cases(int64_t unit) {
  constexpr int64_t all = KeyWindow::kUnlimited;
  const KeyWindow none = KeyPattern::make_empty_window(),
                  own_block{.block_size = unit, .before = 0, .after = 0};
  const int64_t count = (unit + 2) / 3;
  return {{"dilated",
           {.window = none, .dilated = {3, 3 * unit, 2 * unit}},
           {},
           [=](auto, int64_t i, int64_t j) {
             return (i - j) % 3 == 0 && i - j <= 3 * unit && j - i <= 2 * unit;
           }},
          {"strided",
           {.window = {1, unit - 1, unit - 1}, .dilated = {unit, all, all}},
           {},
           [=](auto, int64_t i, int64_t j) { return is_near(i, j, unit - 1) || (i - j) % unit == 0; }},
          {"strided, alternating heads",
           {.window = {1, unit - 1, unit - 1}, .dilated = {unit, all, all}, .alternate_heads = true},
           {},
           [=](int64_t h, int64_t i, int64_t j) {
             return h % 2 == 0 ? is_near(i, j, unit - 1) : (i - j) % unit == 0;
           }},
          {"fixed",
           {.window = own_block, .periodic = {unit, count}},
           {},
           [=](auto, int64_t i, int64_t j) { return i / unit == j / unit || j % unit >= unit - count; }},
          {"fixed, alternating heads",
           {.window = own_block, .periodic = {unit, count}, .alternate_heads = true},
           {},
           [=](int64_t h, int64_t i, int64_t j) {
             return h % 2 == 0 ? i / unit == j / unit : j % unit >= unit - count;
           }}};
}

// Returns patterns with global tokens, tables of key blocks, rectangles, and unions of several patterns.
inline std::vector<PatternCase> mixed_pattern_cases(int64_t length, int64_t heads, int64_t unit) {
  const KeyWindow none = KeyPattern::make_empty_window(),
                  own_block{.block_size = unit, .before = 0, .after = 0};
  const KeyWindow sliding{.block_size = 1, .before = unit, .after = unit};
  const int64_t rows = (length + unit - 1) / unit, last = length - unit / 2;
  const Tensor table = random_blocks(heads, rows, 2);
  const auto listed = [=](int64_t h, int64_t i, int64_t j) {
    const int32_t* const row = table.data<int32_t>() + (h * rows + i / unit) * 2;
    return row[0] == j / unit || row[1] == j / unit;
  };
  return {{"global",
           {.window = sliding, .global = {2, last}},
           {},
           [=](auto, int64_t i, int64_t j) {
             return is_near(i, j, unit) || i < 2 || j < 2 || i >= last || j >= last;
           }},
          {"table",
           {.window = own_block, .table = {nullptr, unit}},
           table,
           [=](int64_t h, int64_t i, int64_t j) { return i / unit == j / unit || listed(h, i, j); }},
          {"table, global",
           {.window = {unit, unit, unit}, .global = {unit}, .table = {nullptr, unit}},
           table,
           [=](int64_t h, int64_t i, int64_t j) {
             return is_near(i / unit, j / unit, 1) || i < unit || j < unit || listed(h, i, j);
           }},
          {"table only", {.window = none, .table = {nullptr, unit}}, table, listed},
          {"grid",
           {.window = none, .grid = {11, {2, 3, 1}, {4, 1, 2}}},
           {},
           [=](auto, int64_t i, int64_t j) {
             const int64_t top = i / 11 / 2 * 2, left = i % 11 / 4 * 4, y = j / 11, x = j % 11;
             return y >= top - 3 && y < top + 3 && x >= left - 1 && x < left + 6;
           }},
          {"all sets",
           {.window = sliding,
            .dilated = {7, length, 0},
            .periodic = {2 * unit, 1},
            .global = {1},
            .grid = {9, {1, 1, 1}, {3, 0, 0}}},
           {},
           [=](auto, int64_t i, int64_t j) {
             return is_near(i, j, unit) || (j <= i && (i - j) % 7 == 0) || j % (2 * unit) == 2 * unit - 1 ||
                    i < 1 || j < 1 || (is_near(i / 9, j / 9, 1) && i % 9 / 3 == j % 9 / 3);
           }},
          {"empty", {.window = none}, {}, [](auto, auto, auto) { return false; }}};
}

// Returns all patterns for `length` tokens and `heads` heads. `unit` is the number of tokens of a block or a
// window.
inline std::vector<PatternCase> pattern_cases(int64_t length, int64_t heads, int64_t unit) {
  std::vector<PatternCase> cases = spaced_pattern_cases(unit);
  for (PatternCase& c : mixed_pattern_cases(length, heads, unit)) cases.push_back(std::move(c));
  return cases;
}

}  // namespace tapeformer::test
