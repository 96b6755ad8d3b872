// Types that the softmax attention kernels share: the arguments of a kernel, the queries, keys and values of
// one head, and the masks of a tile of queries and keys.
#pragma once

#include <limits>
#include <numbers>
#include <type_traits>

#include "ops/cuda/tile_product.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer::cuda {

template <class T>
inline constexpr T kLog2E = std::numbers::log2e_v<T>;

// The input tensors of a kernel. In a forward pass, g, log_sums and deltas are not set.
template <class S>
struct SoftmaxAttentionInputs {
  SoftmaxAttentionShape s;
  AttentionRows<const S> q, k, v, g;
  DropoutMultipliers<Compute<S>> dropout;
  const Compute<S>* log_sums;  // (batch, heads, query_length), the log-sum-exp of the scores of each query
  const Compute<S>* deltas;    // (batch, heads, query_length), the dot products of the rows of g and out
  AttentionRows<const Compute<S>> bias = {};
  AttentionRows<Compute<S>> gbias = {};

  // Returns the log-sum-exp of query `row`, divided by log 2. Returns 0 if all scores of the query are -inf,
  // so that differences of scores and this number are not NaN.
  __device__ Compute<S> load_log_sum(int64_t row) const {
    const Compute<S> log_sum = log_sums[row];
    return log_sum == -std::numeric_limits<Compute<S>>::infinity() ? 0 : kLog2E<Compute<S>> * log_sum;
  }
};

// A pattern of kernels that also add SoftmaxAttentionInputs::bias, which may be null. Other kernels have no
// code for the bias, because it would need registers.
struct KeyPatternAndBias {};

// The type of SoftmaxAttentionHead::attended_pairs. Unless Pattern is AllKeys, the type is a reference to an
// object in shared memory. The functions of KeyPattern are not inlined, so a copy per thread would need stack
// memory.
template <class Pattern>
using HeadAttendedPairs =
    std::conditional_t<std::is_same_v<Pattern, AllKeys>, AttendedPairs<AllKeys>, const AttendedKeys&>;
// Returns the pairs of a query and a key that attention computes for a head. All threads of the block call
// the function, at most once per kernel.
template <class Pattern, class S>
__device__ HeadAttendedPairs<Pattern> load_attended_pairs(const SoftmaxAttentionInputs<S>& in,
                                                          int64_t example, int64_t head) {
  const SoftmaxAttentionShape& s = in.s;
  const int64_t valid_length = get_valid_length(s.key_lengths, example, s.key_length);
  if constexpr (std::is_same_v<Pattern, AllKeys>) {
    return {{}, s.query_length, s.key_length, valid_length, s.causal};
  } else {
    alignas(AttendedKeys) __shared__ unsigned char memory[sizeof(AttendedKeys)];
    auto* const pairs = reinterpret_cast<AttendedKeys*>(memory);
    if (threadIdx.x == 0)
      *pairs = {s.pattern.get_head_pattern(head), s.query_length, s.key_length, valid_length, s.causal};
    __syncthreads();
    return *pairs;
  }
}

// The rows of the operands of one head. Pattern is KeyPattern or KeyPatternAndBias, or AllKeys if
// in.s.pattern.is_limited() is false.
template <class S, class Pattern>
struct SoftmaxAttentionHead {
  int64_t head_index, example, head, query_count, key_count;
  HeadAttendedPairs<Pattern> attended_pairs;
  StridedRows<S> q, k, v, g;

  // `index` is example * heads + head. The index is a 32-bit integer, because a division of 64-bit integers
  // takes many instructions and registers.
  __device__ SoftmaxAttentionHead(const SoftmaxAttentionInputs<S>& in, unsigned index)
      : head_index(index),
        example(index / static_cast<unsigned>(in.s.heads)),
        head(index % static_cast<unsigned>(in.s.heads)),
        query_count(in.s.query_length),
        key_count(in.s.key_length),
        attended_pairs(load_attended_pairs<Pattern>(in, example, head)) {
    q = {in.q.row(example, 0, head), in.q.length_stride, query_count, in.s.dim};
    k = {in.k.row(example, 0, in.s.key_head(head)), in.k.length_stride, attended_pairs.valid_keys, in.s.dim};
    v = {in.v.row(example, 0, in.s.key_head(head)), in.v.length_stride, attended_pairs.valid_keys,
         in.s.value_dim};
    if (in.g.data) g = {in.g.row(example, 0, head), in.g.length_stride, query_count, in.s.value_dim};
    for (StridedRows<S>* rows : {&q, &k, &v, &g}) rows->can_load_pack = rows->is_aligned_to_packs();
  }
  // Returns whether the tile that begins at (query, key) has kTileTokens queries and keys, and each of its
  // queries attends to each of its keys. Always returns false if the pattern is limited.
  __device__ bool is_full_tile(int64_t query, int64_t key) const {
    return !attended_pairs.pattern.is_limited() && query + kTileTokens <= query_count &&
           key + kTileTokens <= attended_pairs.key_end(query);
  }
  // Returns the attention mask of the query for keys [key, key + kTileTokens). Bit j is 1 if the query
  // attends to key `key` + j.
  __device__ uint64_t compute_attention_mask(int64_t query, int64_t key) const {
    static_assert(kTileTokens == 64);
    const int64_t end = key + kTileTokens;
    uint64_t bits = 0;
    if (query >= query_count) return bits;
    for (int64_t from = key; from < end;) {
      const PositionRun run = attended_pairs.find_keys(query, query + 1, from);
      if (run.begin >= end) break;
      const int64_t run_end = run.end < end ? run.end : end;
      bits |= ~uint64_t{0} >> (kTileTokens - (run_end - run.begin)) << (run.begin - key);
      from = run.end;
    }
    return bits;
  }
  // Returns the first key of the next tile of keys, at or after key `from`, to which the queries [begin,
  // begin + kTileTokens) may attend. Queries [begin, begin + kTileTokens) attend to no key of the skipped
  // tiles. If no tile of keys remains, returns a number that is larger than the index of every key.
  __device__ int64_t find_next_key_tile(int64_t begin, int64_t from) const {
    const int64_t end = begin + kTileTokens < query_count ? begin + kTileTokens : query_count;
    return attended_pairs.find_keys(begin, end, from).begin / kTileTokens * kTileTokens;
  }
  // Returns the first query of the next tile of queries, at or after query `from`, that may attend to the
  // keys [begin, begin + kTileTokens). No query of the skipped tiles attends to keys [begin, begin +
  // kTileTokens). If no tile of queries remains, returns a number that is larger than the index of every
  // query.
  __device__ int64_t find_next_query_tile(int64_t begin, int64_t from) const {
    const int64_t end = begin + kTileTokens < key_count ? begin + kTileTokens : key_count;
    return attended_pairs.find_queries(begin, end, from).begin / kTileTokens * kTileTokens;
  }
};

// The attention masks and the dropout masks of the current and the next tile of queries and keys, in shared
// memory. The threads of a block compute a mask together. A mask has 64 bits per query, one for each key.
template <class T>
class TileMasks {
 public:
  // The masks of a tile, and the log-sum-exps and deltas of its queries.
  struct Stage {
    uint64_t attention_masks[kTileTokens];  // attention mask of each query
    // Dropout mask of each query, with one random bit per key of the tile. The random bits of a row of keys
    // are generated in groups of 8, and the first key of the tile can have any index in its group. Therefore
    // bytes 0 to 8 of a mask contain the 9 groups that cover the 64 keys of the tile, and byte 9 is the index
    // of the first key in its group.
    alignas(8) uint8_t dropout_masks[kTileTokens][16];
    T log_sums[kTileTokens], deltas[kTileTokens];  // log_sums are divided by log 2, for fast_exp2()
  };
  struct Memory {
    Stage stages[2];
  };
  __device__ TileMasks(const DropoutMultipliers<T>& dropout, Memory& memory)
      : dropout_(dropout), memory_(memory) {}

  // Computes the masks of the next tile, which begins at query `query` and key `key`. If needs_sums is true,
  // also loads the log_sums and deltas of the tile. Does nothing if `query` or `key` is out of range. After a
  // barrier, advance() makes the next tile the current tile. All threads of the block must call
  // compute_next_masks() and advance().
  template <class S, class Head>
  __device__ void compute_next_masks(const SoftmaxAttentionInputs<S>& in, const Head& head, int64_t query,
                                     int64_t key, bool needs_sums) {
    if (query >= head.query_count || key >= head.key_count) return;
    Stage& next = memory_.stages[1 - stage_];
    const int thread = static_cast<int>(threadIdx.x);
    next_has_masked_pairs_ = !head.is_full_tile(query, key);
    if (next_has_masked_pairs_ && thread < kTileTokens)
      next.attention_masks[thread] = head.compute_attention_mask(query + thread, key);
    if (needs_sums && thread < kTileTokens) {
      const int64_t i = query + thread, row = head.head_index * head.query_count + i;
      next.log_sums[thread] = i < head.query_count ? in.load_log_sum(row) : T{0};
      next.deltas[thread] = i < head.query_count ? in.deltas[row] : T{0};
    }
    if (has_dropout())
      draw_dropout_mask(next,
                        dropout_.offset + (head.head_index * head.query_count + query) * head.key_count + key,
                        head.key_count);
  }
  __device__ void advance() {
    stage_ = 1 - stage_;
    has_masked_pairs_ = next_has_masked_pairs_;
  }

  // The functions below return properties of the current tile, or of query `query` of the tile.

  // Returns whether the tile can contain masked pairs of a query and a key. If the result is false, every
  // query attends to every key, and the masks of attention_mask() are not set.
  __device__ bool has_masked_pairs() const { return has_masked_pairs_; }
  __device__ uint64_t attention_mask(int query) const {
    return memory_.stages[stage_].attention_masks[query];
  }
  // Returns whether dropout is active. If dropout is not active, dropout_mask() must not be called.
  __device__ bool has_dropout() const { return dropout_.threshold != 0; }
  __device__ T dropout_scale() const { return has_dropout() ? dropout_.scale : T{1}; }
  __device__ uint64_t dropout_mask(int query) const {
    const uint8_t(&bytes)[16] = memory_.stages[stage_].dropout_masks[query];
    const unsigned first_bit = bytes[9];
    return *reinterpret_cast<const uint64_t*>(bytes) >> first_bit | uint64_t{bytes[8]} << 1
                                                                                       << (63 - first_bit);
  }
  __device__ T log_sum(int query) const { return memory_.stages[stage_].log_sums[query]; }
  __device__ T delta(int query) const { return memory_.stages[stage_].deltas[query]; }

 private:
  // Draws the dropout mask of a tile. Element (i, j) of the tile has the index first + i * key_count + j in
  // the random stream.
  __device__ void draw_dropout_mask(Stage& next, int64_t first, int64_t key_count) {
    constexpr int kGroupsPerRow = kTileTokens / 8 + 1;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kTileTokens * kGroupsPerRow;
         i += static_cast<int>(blockDim.x)) {
      const int row = i / kGroupsPerRow, group = i % kGroupsPerRow;
      const int64_t begin = first + row * key_count;
      next.dropout_masks[row][group] = dropout_.compute_keep_mask(begin / 8 + group);
      if (group == 0) next.dropout_masks[row][kGroupsPerRow] = static_cast<uint8_t>(begin % 8);
    }
  }

  const DropoutMultipliers<T>& dropout_;
  Memory& memory_;
  int stage_ = 1;
  bool has_masked_pairs_ = false, next_has_masked_pairs_ = false;
};

}  // namespace tapeformer::cuda
