// Operands of a head of softmax attention, and the masks of its tiles of queries and keys.
#pragma once

#include <numbers>
#include <type_traits>

#include "ops/cuda/tile_product.h"
#include "ops/kernels/softmax_attention.h"

namespace tapeformer::cuda {

template <class T>
inline constexpr T kLog2E = std::numbers::log2e_v<T>;

template <class S>
struct SoftmaxInputs {
  SoftmaxAttentionShape s;
  AttentionRows<const S> q, k, v, g;
  DropoutFactors<Compute<S>> dropout;
  const Compute<S>*log_sums, *deltas;  // (batch, heads, query_length); deltas: g . out
};

// AttendedPairs<Pattern> of a head. A KeyPattern is in shared memory: its functions are not inlined, so each
// thread would keep its copy on the stack. All threads of the block call the function once.
template <class Pattern>
using AttendedKeysOfHead = std::conditional_t<std::is_same_v<Pattern, AllKeys>, AttendedPairs<Pattern>,
                                              const AttendedPairs<Pattern>&>;
template <class Pattern, class S>
__device__ AttendedKeysOfHead<Pattern> attended_keys_of_head(const SoftmaxInputs<S>& in, int64_t example,
                                                             int64_t head) {
  const SoftmaxAttentionShape& s = in.s;
  const int64_t valid = read_valid_length(s.key_lengths, example, s.key_length);
  if constexpr (std::is_same_v<Pattern, AllKeys>) {
    return {{}, s.query_length, s.key_length, valid, s.causal};
  } else {
    using Attended = AttendedPairs<Pattern>;
    alignas(Attended) __shared__ unsigned char memory[sizeof(Attended)];
    auto* const attended = reinterpret_cast<Attended*>(memory);
    if (threadIdx.x == 0)
      *attended = {s.pattern.pattern_of_head(head), s.query_length, s.key_length, valid, s.causal};
    __syncthreads();
    return *attended;
  }
}

// Operands of one head. Pattern is KeyPattern, or AllKeys if the pattern of the attention is not limited.
template <class S, class Pattern>
struct SoftmaxHead {
  int64_t index, example, head, queries, keys;
  AttendedKeysOfHead<Pattern> attended;
  PlainRows<S> q, k, v, g;

  // `number` is example * heads + head. Division in 64 bits would take many instructions and registers.
  __device__ SoftmaxHead(const SoftmaxInputs<S>& in, unsigned number)
      : index(number),
        example(number / static_cast<unsigned>(in.s.heads)),
        head(number % static_cast<unsigned>(in.s.heads)),
        queries(in.s.query_length),
        keys(in.s.key_length),
        attended(attended_keys_of_head<Pattern>(in, example, head)) {
    q = {in.q.row(example, 0, head), in.q.length_stride, queries, in.s.dim};
    k = {in.k.row(example, 0, head), in.k.length_stride, attended.valid_keys, in.s.dim};
    v = {in.v.row(example, 0, head), in.v.length_stride, attended.valid_keys, in.s.value_dim};
    if (in.g.data) g = {in.g.row(example, 0, head), in.g.length_stride, queries, in.s.value_dim};
    for (PlainRows<S>* rows : {&q, &k, &v, &g}) rows->is_packed = rows->has_packs();
  }
  // Returns true if the tile has kTokens queries and keys, and each query attends to each key. May return
  // false for such tiles if the pattern is limited.
  __device__ bool attends_to_all(int64_t query, int64_t key) const {
    return !attended.pattern.is_limited() && query + kTokens <= queries &&
           key + kTokens <= attended.key_end(query);
  }
  // Returns the keys of a tile that a query attends to, one bit per key.
  __device__ uint64_t seen_in_tile(int64_t query, int64_t key) const {
    static_assert(kTokens == 64);
    const int64_t end = key + kTokens;
    uint64_t seen = 0;
    if (query >= queries) return seen;
    for (int64_t from = key; from < end;) {
      const PositionRun run = attended.keys(query, query + 1, from);
      if (run.begin >= end) break;
      const int64_t last = run.end < end ? run.end : end;
      seen |= ~uint64_t{0} >> (kTokens - (last - run.begin)) << (run.begin - key);
      from = run.end;
    }
    return seen;
  }
  // Returns the start of the first tile of keys, at or after `from`, that a block of queries attends to. The
  // result is at least PositionRun::kEnd - kTokens if there is none.
  __device__ int64_t next_key_tile(int64_t begin, int64_t from) const {
    const int64_t end = begin + kTokens < queries ? begin + kTokens : queries;
    return attended.keys(begin, end, from).begin / kTokens * kTokens;
  }
  // Returns the start of the first tile of queries, at or after `from`, that attends to a block of keys.
  __device__ int64_t next_query_tile(int64_t begin, int64_t from) const {
    const int64_t end = begin + kTokens < keys ? begin + kTokens : keys;
    return attended.queries(begin, end, from).begin / kTokens * kTokens;
  }
};

// The masks of the current and the next tile of queries and keys, in shared memory. The threads of a block
// compute them together. A mask holds 64 bits per query, one for each key.
template <class T>
class TileMasks {
 public:
  // The masks of a tile, and numbers of its queries: log_sums in units of log 2, and deltas.
  struct Stage {
    uint64_t seen[kTokens];
    // Bytes 0 to 8 contain the mask of a query. Byte 9 is the number of the first bit of the mask.
    alignas(8) uint8_t kept[kTokens][16];
    T log_sums[kTokens], deltas[kTokens];
  };
  struct Memory {
    Stage stages[2];
  };
  __device__ TileMasks(const DropoutFactors<T>& dropout, Memory& memory)
      : dropout_(dropout), memory_(memory) {}

  // Computes the masks of the next tile, if it exists, and its log_sums and deltas if with_sums is true.
  // After a barrier, advance() makes the next tile the current tile. All threads of the block call both
  // functions.
  template <class S, class Head>
  __device__ void prepare(const SoftmaxInputs<S>& in, const Head& head, int64_t query, int64_t key,
                          bool with_sums) {
    if (query >= head.queries || key >= head.keys) return;
    Stage& next = memory_.stages[1 - stage_];
    const int thread = static_cast<int>(threadIdx.x);
    next_masked_ = !head.attends_to_all(query, key);
    if (next_masked_ && thread < kTokens) next.seen[thread] = head.seen_in_tile(query + thread, key);
    if (with_sums && thread < kTokens) {
      const int64_t i = query + thread, at = head.index * head.queries + i;
      next.log_sums[thread] = i < head.queries ? kLog2E<T> * in.log_sums[at] : T{0};
      next.deltas[thread] = i < head.queries ? in.deltas[at] : T{0};
    }
    if (drops())
      draw(next, dropout_.offset + (head.index * head.queries + query) * head.keys + key, head.keys);
  }
  __device__ void advance() {
    stage_ = 1 - stage_;
    masked_ = next_masked_;
  }

  // Returns whether some query of the tile does not attend to some key.
  __device__ bool masked() const { return masked_; }
  __device__ uint64_t seen(int query) const { return memory_.stages[stage_].seen[query]; }
  // Returns whether dropout is active.
  __device__ bool drops() const { return dropout_.threshold != 0; }
  // Returns the multiplier of the weights that dropout keeps.
  __device__ T scale() const { return drops() ? dropout_.scale : T{1}; }
  __device__ uint64_t kept(int query) const {
    const uint8_t(&bytes)[16] = memory_.stages[stage_].kept[query];
    const unsigned first = bytes[9];
    return *reinterpret_cast<const uint64_t*>(bytes) >> first | uint64_t{bytes[8]} << 1 << (63 - first);
  }
  __device__ T log_sum(int query) const { return memory_.stages[stage_].log_sums[query]; }
  __device__ T delta(int query) const { return memory_.stages[stage_].deltas[query]; }

 private:
  // Draws the dropout mask of a tile, eight elements per Philox block. `first` is the index of the first
  // element of the tile in the random stream.
  __device__ void draw(Stage& next, int64_t first, int64_t keys) {
    constexpr int kGroups = kTokens / 8 + 1;
#pragma unroll 1
    for (int part = static_cast<int>(threadIdx.x); part < kTokens * kGroups;
         part += static_cast<int>(blockDim.x)) {
      const int row = part / kGroups, group = part % kGroups;
      const int64_t begin = first + row * keys;
      next.kept[row][group] = dropout_.keep_bits(begin / 8 + group);
      if (group == 0) next.kept[row][kGroups] = static_cast<uint8_t>(begin % 8);
    }
  }

  const DropoutFactors<T>& dropout_;
  Memory& memory_;
  int stage_ = 1;
  bool masked_ = false, next_masked_ = false;
};

}  // namespace tapeformer::cuda
