// Chunks of tokens and groups of heads, the units of work of linear attention.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/threads/threads.h"
#include "ops/cpu/arena.h"
#include "ops/cpu/feature_map.h"
#include "ops/cpu/outer_product_scan.h"

namespace tapeformer::cpu {

// The tokens [begin, begin + count) of a sequence.
struct Chunk {
  int64_t begin, count;
};

template <class F>
void for_chunks(int64_t length, F&& f) {
  for (int64_t begin = 0; begin < length; begin += kChunkTokens)
    f(Chunk{begin, std::min(kChunkTokens, length - begin)});
}
template <class F>
void for_chunks_backwards(int64_t length, F&& f) {
  for (int64_t begin = (length - 1) / kChunkTokens * kChunkTokens; begin >= 0 && length > 0;
       begin -= kChunkTokens)
    f(Chunk{begin, std::min(kChunkTokens, length - begin)});
}

// Arrays of several heads. The arrays of adjacent heads are `stride` elements apart.
template <class T>
struct PerHead {
  T* data = nullptr;
  int64_t stride = 0;
  T* operator[](int64_t head) const { return data + head * stride; }
};

// Copy the first `count` tokens of `rows` to panels (ops/cpu/outer_product_scan.h), and panels to rows.
template <class U, class T>
void load_panels(TokenRows<const U> rows, int64_t count, PerHead<T> panels) {
  for_each_vector(
      rows, count,
      [panels](const U* row, int64_t head, int64_t, int64_t at, int64_t left)
          __attribute__((always_inline)) { store(panels[head] + at, load_first(row, left)); });
}
template <class U, class T>
void store_panels(PerHead<T> panels, int64_t count, TokenRows<U> rows) {
  for_each_vector(
      rows, count,
      [panels](U * row, int64_t head, int64_t, int64_t at, int64_t left)
          __attribute__((always_inline)) { store_first<U>(row, load(panels[head] + at), left); });
}

// Returns the dot product of the elements of token t in two panels with `dim` elements per token.
template <class T>
T dot_of_token(const T* a, const T* b, int64_t dim, int64_t t) {
  Vector<T> total{};
  for (int64_t i = 0; i < dim; i += kLanes<T>) {
    const int64_t at = compute_panel_index<T>(t, i);
    total += load(a + at) * load(b + at);
  }
  return sum(total);
}

// Returns the number of heads per task that balances the work of the threads.
inline int64_t choose_group_size(int64_t batch, int64_t heads) {
  constexpr int64_t kMaxGroup = 8;  // number of heads
  int64_t best = 1, best_work = batch * heads + kMaxGroup;
  for (int64_t group = 1; group <= std::min(kMaxGroup, heads); ++group) {
    const int64_t tasks = batch * ((heads + group - 1) / group);
    const int64_t work = (tasks + get_thread_count() - 1) / get_thread_count() * group;
    if (work <= best_work) {
      best = group;
      best_work = work;
    }
  }
  return best;
}

// Calls f(group) for groups of at most choose_group_size() heads of all sequences, in parallel. Each thread
// has a group, the result of make(heads per group), whose take_memory(arena) and select(batch, first head)
// are called before f. `work` is the number of multiply-adds of a head.
template <class ProcessorState, class Make, class F>
void for_head_groups(int64_t batch, int64_t heads, int64_t work, const Make& make, const F& f) {
  if (batch == 0 || heads == 0) return;
  const int64_t size = choose_group_size(batch, heads), groups = (heads + size - 1) / size;
  for_each_task<ProcessorState>(
      batch * groups, size * work, [&] { return make(size); },
      [&](auto& group, int64_t task) {
        group.select(task / groups, task % groups * size);
        f(group);
      });
}

}  // namespace tapeformer::cpu
