// What the kernels of LSH attention share: pairs of kTokens queries and kTokens keys, gathered by position.
#pragma once

#include <limits>

#include "ops/cuda/lsh_order.h"
#include "ops/cuda/tile_product.h"

namespace tapeformer::cuda {

template <class T>
struct LshInputs {
  LshAttentionShape s;
  LshOrderView order;
  AttentionRows<const T> q, v, g;
  const T* factors;   // (batch, heads, length): key = factor q, the scale of the scores included
  const T* log_sums;  // (batch, heads, log_sum_rounds, length)
  const T* deltas;    // (batch, heads, log_sum_rounds, length): g . out, of a round's own out with mean
};

// Places of a chunk in one round.
struct LshPlaces {
  const int32_t* positions = nullptr;
  int64_t count = 0, round = 0;
};

// The positions of a tile in shared memory and the codes by which queries and keys find each other.
struct LshTilePositions {
  int32_t queries[kTokens], query_codes[kTokens], keys[kTokens], key_codes[kTokens];
};

// The work of a block: kTokens places of a chunk of a head in one round.
template <class T>
struct LshBlock {
  const LshInputs<T>& in;
  LshTilePositions& tile;
  T *left, *right, *weights;  // slices of operands; (kTokens, kTileStride) transposed weights
  int64_t index, example, head;
  LshHeadOrder order;

  using Scores = Tile<T, kTokens, kTokens>;
  static constexpr size_t kBytes = (2 * kSliceElements<kTokens> + kTokens * kTileStride<kTokens>)*sizeof(T);

  __device__ LshBlock(const LshInputs<T>& inputs, LshTilePositions& positions, T* memory, int64_t number)
      : in(inputs),
        tile(positions),
        left(memory),
        right(left + kSliceElements<kTokens>),
        weights(right + kSliceElements<kTokens>),
        index(number),
        example(number / inputs.s.heads),
        head(number % inputs.s.heads),
        order(inputs.s, inputs.order, number) {}

  __device__ LshPlaces places(int64_t round, int64_t chunk) const {
    return {order.positions(round, chunk), order.places(chunk), round};
  }
  // Of the chunk that a chunk looks back at.
  __device__ LshPlaces places_before(int64_t round, int64_t chunk) const {
    if (chunk > 0) return places(round, chunk - 1);
    const LshWrapCell wrap = order.wrap(round);
    return wrap.from == kNoCell ? LshPlaces{} : places(wrap.round, order.chunks - 1);
  }

  // Queries [begin, begin + kTokens) of some places; with `back`, they look for keys of the chunk before. The
  // threads must not be reading those of before.
  __device__ void load_queries(const LshPlaces& from, int64_t begin, bool back) {
    const int64_t i = threadIdx.x;
    if (i >= kTokens) return;
    const bool there = begin + i < from.count;
    const int32_t position = there ? from.positions[begin + i] : -1;
    int32_t code = kNoCell;
    if (there) code = order.code(from.round, position);
    if (there && back) code = order.look_back(from.round, code).code;
    tile.queries[i] = position;
    tile.query_codes[i] = code;
  }
  __device__ void load_keys(const LshPlaces& from, int64_t begin) {
    const int64_t j = threadIdx.x;
    if (j >= kTokens) return;
    const bool there = begin + j < from.count;
    const int32_t position = there ? from.positions[begin + j] : -1;
    tile.keys[j] = position;
    tile.key_codes[j] = there ? order.code(from.round, position) : kNoPlace;
  }
  __device__ bool sees(int i, int j) const {
    if (tile.query_codes[i] != tile.key_codes[j]) return false;
    return in.s.causal ? tile.keys[j] < tile.queries[i] : tile.keys[j] != tile.queries[i];
  }

  __device__ static T element(const AttentionRows<const T>& rows, int64_t example, int64_t head,
                              int32_t position, int64_t feature, int64_t width) {
    return position >= 0 && feature < width ? rows.row(example, position, head)[feature] : T{0};
  }
  __device__ T q_at(int32_t position, int64_t d) const {
    return element(in.q, example, head, position, d, in.s.dim);
  }
  __device__ T v_at(int32_t position, int64_t m) const {
    return element(in.v, example, head, position, m, in.s.value_dim);
  }
  __device__ T g_at(int32_t position, int64_t m) const {
    return element(in.g, example, head, position, m, in.s.value_dim);
  }
  __device__ T factor(int32_t position) const { return in.factors[index * in.s.length + position]; }
  __device__ int64_t log_sum_index(int64_t round, int64_t position) const {
    return (index * in.s.log_sum_rounds() + (in.s.mean ? round : 0)) * in.s.length + position;
  }
  // In how many places of all rounds a query meets a key.
  __device__ T meetings(int32_t query, int32_t key) const {
    if (!in.s.exact_duplicates) return 1;
    int count = 0;
#pragma unroll 1  // 16 pairs of each thread, unrolled, are code enough
    for (int64_t round = 0; round < in.s.rounds; ++round) {
      const int32_t code = order.code(round, query);
      const LshWrapCell back = order.look_back(round, code);
      count += order.code(round, key) == code;
      count += order.code(back.round, key) == back.code;
    }
    return static_cast<T>(count);
  }

  // The weight of a key that query i, of this round, sees, and the gradient of q_i . q_j from g_i . v_j.
  __device__ T weight(int i, int j, T product, T log_sum) const {
    if (!sees(i, j)) return 0;
    const int32_t key = tile.keys[j];
    const T p = std::exp(factor(key) * product - log_sum) / meetings(tile.queries[i], key);
    return in.s.mean ? p / static_cast<T>(in.s.rounds) : p;
  }
  __device__ T score_gradient(int j, T weight, T g_v, T delta) const {
    return weight == 0 ? T{0} : weight * (g_v - delta) * factor(tile.keys[j]);
  }
};

// Blocks of kTokens places in every chunk of every head; tiles of the result along y.
struct LshGrid {
  int64_t heads, chunks, blocks;

  explicit LshGrid(const LshAttentionShape& s)
      : heads(s.batch * s.heads),
        chunks(tiles_of(s.length, s.chunk_length)),
        blocks(tiles_of(s.chunk_length, kTokens)) {}
  Launch launch(int64_t tiles, size_t shared,
                std::source_location where = std::source_location::current()) const {
    return {dim3(static_cast<unsigned>(heads * chunks * blocks), static_cast<unsigned>(tiles)),
            dim3(kTileThreads), shared, where};
  }
  __device__ int64_t head() const { return blockIdx.x / (chunks * blocks); }
  __device__ int64_t chunk() const { return blockIdx.x / blocks % chunks; }
  __device__ int64_t first_place() const { return blockIdx.x % blocks * kTokens; }
};

// factors of all positions that count; those of the others are not set.
template <class T>
void lsh_factors(const LshAttentionShape& s, AttentionRows<const T> q, T* factors);
// target = 0 in the rows of positions that do not count.
template <class T>
void lsh_clear_uncounted(const LshAttentionShape& s, AttentionRows<T> target, int64_t width);

}  // namespace tapeformer::cuda
