// Distribution of the heads of LSH attention over threads.
#pragma once

#include "ops/cpu/arena.h"
#include "ops/cpu/lsh_window.h"

namespace tapeformer::cpu {

// Calls f(example, head, order, rows, for_segments) for each head of each sequence, where
// - `order` holds the sorted positions of the head,
// - `rows` is the workspace of the head, of type Head,
// - for_segments(g) calls g(window, segment, first_chunk, end_chunk) for each segment of chunks.
// make(rows) creates `window`, and each thread uses a separate window.
//
// If there are at least as many heads as threads, the heads run in parallel. Otherwise, the segments of each
// head run in parallel. Because segments can run in parallel, the segments of one call of for_segments() must
// write different data.
template <class Head, class Make, class F>
void for_each_lsh_head(const LshAttentionShape& s, Make&& make, const int32_t* buckets, F&& f) {
  Arena measuring_arena(nullptr), measuring_head_arena(nullptr);
  measuring_head_arena.allocate<int32_t>(LshOrder::get_workspace_size(s));
  make(Head(s, measuring_head_arena)).take(measuring_arena);
  const int64_t task_count = s.batch * s.heads, thread_count = get_thread_count();
  const int64_t heads_at_once = task_count >= thread_count ? thread_count : 1;
  const PerThreadMemory window_memory(measuring_arena.used_bytes());
  const Scratch<char> head_memory(measuring_head_arena.used_bytes() * heads_at_once);
  constexpr int64_t kMinWorkPerThread = 1 << 18;  // number of multiply-adds in the forward pass
  const int64_t chunk_work = 2 * s.chunk_length * s.chunk_length * (s.dim + s.value_dim);
  const int64_t head_work = s.rounds * (s.length / s.chunk_length + 1) * chunk_work;
  auto run = [&](int64_t begin, int64_t end) {
    const int64_t slot = heads_at_once > 1 ? get_thread_index() : 0;
    Arena head_arena(head_memory.data() + measuring_head_arena.used_bytes() * slot);
    LshOrder order(s, head_arena.allocate<int32_t>(LshOrder::get_workspace_size(s)));
    const Head rows(s, head_arena);
    for (int64_t task = begin; task < end; ++task) {
      const int64_t example = task / s.heads, head = task % s.heads;
      order.sort(s.valid_length(example), buckets + task * s.rounds * s.length);
      f(example, head, order, rows, [&](auto&& g) {
        const int64_t segment_count = (order.chunk_count() + kChunksPerLshSegment - 1) / kChunksPerLshSegment;
        parallel_for(segment_count, kMinWorkPerThread / (kChunksPerLshSegment * chunk_work) + 1,
                     [&](int64_t first_segment, int64_t end_segment) {
                       auto window = make(rows);
                       Arena arena = window_memory.arena();
                       window.take(arena);
                       for (int64_t segment = first_segment; segment < end_segment; ++segment)
                         g(window, segment, segment * kChunksPerLshSegment,
                           std::min((segment + 1) * kChunksPerLshSegment, order.chunk_count()));
                     });
      });
    }
  };
  if (heads_at_once > 1)
    parallel_for(task_count, kMinWorkPerThread / head_work + 1, run);
  else
    run(0, task_count);
}

}  // namespace tapeformer::cpu
