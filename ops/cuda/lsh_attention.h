// Shared parts of the LSH attention kernels: tiles of kTokens queries and kTokens keys, gathered by position.
#pragma once

#include <limits>

#include "ops/cuda/lsh_order.h"
#include "ops/cuda/tensor_tiles.h"

namespace tapeformer::cuda {

template <class S>
struct LshInputs {
  using T = Compute<S>;
  LshAttentionShape s;
  LshOrderView order;
  AttentionRows<const S> q, v, g;
  const T* factors;   // (batch, heads, length): key = factor * q, including the scale of the scores
  const T* log_sums;  // (batch, heads, log_sum_round_count, length)
  // (batch, heads, log_sum_round_count, length): g . out. If rounds are averaged, `out` is the result of one
  // round, otherwise the final result.
  const T* deltas;
  const T* multipliers;  // (chunk_length, 2 chunk_length): dropout multipliers; null without dropout
};

// The slots of a chunk in one round.
struct LshSlots {
  const int32_t* positions = nullptr;
  int64_t count = 0, round = 0;
};

// A tile in shared memory: positions and cell codes of queries and keys. If weights are divided by
// multiplicities, the tile also holds the number of times that each query attends to each key in all rounds.
template <class T>
struct LshTile {
  int32_t queries[kTokens], query_codes[kTokens], keys[kTokens], key_codes[kTokens];
  T factors[kTokens];                             // factors of the keys
  uint16_t multiplicities[kTokens][kTokens + 2];  // indexed by query and key
};

// Features of rows of a head, at the positions of a tile, as an operand of products (RowsOperand in
// ops/cuda/tile_product.h). Rows at negative positions are zero.
template <Lanes kLanes, class S>
struct LshOperand {
  static constexpr bool kAlongDepth = kLanes == Lanes::along_depth;
  AttentionRows<const S> rows;  // rows of the head: data is the row of position 0
  int64_t width;
  bool packed;               // whether 16-byte loads can read the rows
  const int32_t* positions;  // in shared memory
  int64_t column;            // first feature

  __device__ bool is_packed() const { return packed; }
  __device__ Compute<S> operator()(int64_t d, int64_t i) const {
    const int32_t position = positions[kAlongDepth ? i : d];
    const int64_t feature = column + (kAlongDepth ? d : i);
    return position >= 0 && feature < width
               ? convert_element<Compute<S>>(rows.data[position * rows.length_stride + feature])
               : Compute<S>{0};
  }
  // As RowsOperand::pack.
  __device__ Pack<S> pack(int64_t d, int64_t i) const {
    const int32_t position = positions[kAlongDepth ? i : d];
    const int64_t feature = column + (kAlongDepth ? d : i);
    return position >= 0 && feature < width
               ? Pack<S>::load(rows.data + position * rows.length_stride + feature)
               : Pack<S>{};
  }
};

// The state of a thread block, which processes kTokens slots of a chunk in one head and round.
template <class Tiles>
struct LshBlock {
  using T = typename Tiles::Value;
  using S = typename Tiles::Stored;
  const LshInputs<S>& in;
  LshTile<T>& tile;
  typename Tiles::Memory memory;
  int64_t index, example, head;
  LshHeadOrder order;
  int64_t query_slot = 0, key_column = 0;  // first row and column of the tile in `multipliers`

  using Scores = typename Tiles::template Tile<kTokens, kTokens>;

  __device__ LshBlock(const LshInputs<S>& inputs, LshTile<T>& shared, int64_t head_index)
      : in(inputs),
        tile(shared),
        index(head_index),
        example(head_index / inputs.s.heads),
        head(head_index % inputs.s.heads),
        order(inputs.s, inputs.order, head_index) {}

  __device__ LshSlots slots(int64_t round, int64_t chunk) const {
    return {order.positions(round, chunk), order.slots(chunk), round};
  }
  // Returns the slots of the chunk before a chunk of a round, or no slots if there is no such chunk.
  __device__ LshSlots slots_before(int64_t round, int64_t chunk) const {
    if (chunk > 0) return slots(round, chunk - 1);
    const LshWrapCell wrap = order.wrap(round);
    return wrap.from == kNoCell ? LshSlots{} : slots(wrap.round, order.chunks - 1);
  }

  // Loads queries [begin, begin + kTokens) of the slots `from`. `back` states that the keys of the tile are
  // in the previous chunk. All threads must have finished reading the previous queries.
  __device__ void load_queries(const LshSlots& from, int64_t begin, bool back) {
    query_slot = begin;
    key_column = back ? 0 : in.s.chunk_length;
    const int64_t i = threadIdx.x;
    if (i >= kTokens) return;
    const bool exists = begin + i < from.count;
    const int32_t position = exists ? from.positions[begin + i] : -1;
    int32_t code = kNoCell;
    if (exists) code = order.code(from.round, position);
    if (exists && back) code = order.look_back(from.round, code).code;
    tile.queries[i] = position;
    tile.query_codes[i] = code;
  }
  // Loads keys [begin, begin + kTokens) of the slots `from`. Must be called after load_queries().
  __device__ void load_keys(const LshSlots& from, int64_t begin) {
    key_column += begin;
    const int64_t j = threadIdx.x;
    if (j >= kTokens) return;
    const bool exists = begin + j < from.count;
    const int32_t position = exists ? from.positions[begin + j] : -1;
    tile.keys[j] = position;
    tile.factors[j] = exists ? in.factors[index * in.s.length + position] : T{0};
    tile.key_codes[j] = exists ? order.code(from.round, position) : kEmptySlot;
  }
  // Returns whether query i of the tile attends to key j.
  __device__ bool sees(int i, int j) const {
    if (tile.query_codes[i] != tile.key_codes[j]) return false;
    return in.s.causal ? tile.keys[j] < tile.queries[i] : tile.keys[j] != tile.queries[i];
  }

  __device__ static T element(const AttentionRows<const S>& rows, int64_t example, int64_t head,
                              int32_t position, int64_t feature, int64_t width) {
    return position >= 0 && feature < width ? convert_element<T>(rows.row(example, position, head)[feature])
                                            : T{0};
  }
  template <Lanes kLanes>
  __device__ LshOperand<kLanes, S> operand(const AttentionRows<const S>& all, int64_t width,
                                           const int32_t* positions, int64_t column) const {
    AttentionRows<const S> rows = all;
    rows.data = all.row(example, 0, head);
    const PlainRows<S> plain{.data = rows.data, .stride = rows.length_stride, .width = width};
    return {rows, width, plain.has_packs(), positions, column};
  }
  // Return features of queries, values or gradients of the result, from feature `column` of the rows.
  template <Lanes kLanes>
  __device__ auto queries(const int32_t* positions, int64_t column = 0) const {
    return operand<kLanes>(in.q, in.s.dim, positions, column);
  }
  template <Lanes kLanes>
  __device__ auto values(const int32_t* positions, int64_t column = 0) const {
    return operand<kLanes>(in.v, in.s.value_dim, positions, column);
  }
  template <Lanes kLanes>
  __device__ auto gradients(const int32_t* positions, int64_t column = 0) const {
    return operand<kLanes>(in.g, in.s.value_dim, positions, column);
  }
  __device__ T v_at(int32_t position, int64_t m) const {
    return element(in.v, example, head, position, m, in.s.value_dim);
  }
  __device__ T g_at(int32_t position, int64_t m) const {
    return element(in.g, example, head, position, m, in.s.value_dim);
  }
  __device__ int64_t log_sum_index(int64_t round, int64_t position) const {
    return (index * in.s.log_sum_round_count() + (in.s.average_rounds ? round : 0)) * in.s.length + position;
  }
  // Computes the multiplicities. All threads call the function after the positions are loaded, and
  // synchronise before they read the result. Uses the memory of the products, which other threads must not
  // read.
  __device__ void count_multiplicities() {
    if (!in.s.exact_duplicates) return;
    // Codes of the cells of each query in a round: the cell, and the look-back cell if it is in the same
    // round or across the ends of the sequence. Even and odd rounds use separate memory, so that one barrier
    // per round suffices.
    using Codes = Pack<int32_t>;
    constexpr int kStep = Tiles::kThreads / kTokens, kRows = kTokens / kStep;  // query rows of a thread
    static_assert(2 * kTokens * sizeof(Codes) <= Tiles::Memory::kSliceBytes);
    int32_t* const memory_of_codes = dynamic_shared<int32_t>();
    const int thread = static_cast<int>(threadIdx.x), j = thread % kTokens, first = thread / kTokens;
    const int32_t query = tile.queries[j], key = tile.keys[j];
    int counts[kRows] = {};
#pragma unroll 1
    for (int64_t round = 0; round < in.s.rounds; ++round) {
      int32_t* const codes = memory_of_codes + round % 2 * kTokens * Codes::kSize;
      const LshWrapCell wrap = order.wrap(round);
      if (thread < kTokens) {
        const int32_t code = query >= 0 ? order.code(round, query) : kNoCell;
        const bool crosses = code == wrap.from;
        Codes{{code, crosses ? kNoCell : code - 1, crosses ? wrap.code : kNoCell, 0}}.store(codes +
                                                                                            j * Codes::kSize);
      }
      const int32_t code = key >= 0 ? order.code(round, key) : kEmptySlot;
      const int32_t other = key >= 0 ? order.code(wrap.round, key) : kEmptySlot;
      __syncthreads();
#pragma unroll(kUnrolled <T>)
      for (int n = 0; n < kRows; ++n) {
        const Codes cells = Codes::load(codes + (first + n * kStep) * Codes::kSize);
        counts[n] += (code == cells.values[0]) + (code == cells.values[1]) + (other == cells.values[2]);
      }
    }
#pragma unroll(kUnrolled <T>)
    for (int n = 0; n < kRows; ++n)
      tile.multiplicities[first + n * kStep][j] = static_cast<uint16_t>(counts[n]);
  }
  // Returns the multiplicity of a key that the query attends to.
  __device__ T multiplicity(int i, int j) const {
    return in.s.exact_duplicates ? static_cast<T>(tile.multiplicities[i][j]) : T{1};
  }

  // Returns the weight of key j for query i in this round, or 0 if the query does not attend to the key.
  __device__ T weight(int i, int j, T product, T log_sum) const {
    if (!sees(i, j)) return 0;
    const T p = std::exp(tile.factors[j] * product - log_sum) / multiplicity(i, j);
    return in.s.average_rounds ? p / static_cast<T>(in.s.rounds) : p;
  }
  // Returns the dropout multiplier for query i and key j, or 0 if the query or the key is outside of its
  // chunk.
  __device__ T dropped(int i, int j) const {
    if (!in.multipliers) return 1;
    const int64_t row = query_slot + i, column = key_column + j, columns = 2 * in.s.chunk_length;
    return row < in.s.chunk_length && column < columns ? in.multipliers[row * columns + column] : T{0};
  }
  // Returns the gradient of the product q_i . q_j. g_v is the product g_i . v_j, and delta is the element of
  // LshInputs::deltas for query i.
  __device__ T score_gradient(int j, T weight, T g_v, T delta) const {
    return weight == 0 ? T{0} : weight * (g_v - delta) * tile.factors[j];
  }
};

// A grid with one block per kTokens slots of a chunk of a head. blockIdx.y selects a tile of the result.
struct LshGrid {
  int64_t heads, chunks, blocks;

  explicit LshGrid(const LshAttentionShape& s)
      : heads(s.batch * s.heads),
        chunks(tiles_of(s.length, s.chunk_length)),
        blocks(tiles_of(s.chunk_length, kTokens)) {}
  template <class Tiles>
  Launch launch(int64_t tiles, SourceLocation where = SourceLocation::current()) const {
    return over_tiles(heads * chunks * blocks, tiles, Tiles::kThreads, Tiles::Memory::kBytes, where);
  }
  __device__ int64_t head() const { return blockIdx.x / (chunks * blocks); }
  __device__ int64_t chunk() const { return blockIdx.x / blocks % chunks; }
  __device__ int64_t first_slot() const { return blockIdx.x % blocks * kTokens; }
};

// The device memory of LshInputs::multipliers.
template <class T>
class LshMultipliers {
 public:
  explicit LshMultipliers(const LshAttentionShape& s);
  const T* data() const { return active_ ? table_.data() : nullptr; }

 private:
  bool active_;
  Scratch<T> table_;
};

// Computes the factors of all positions (LshInputs::factors).
template <class S>
void lsh_factors(const LshAttentionShape& s, AttentionRows<const S> q, Compute<S>* factors);
// Sets the rows of masked positions to 0.
template <class T>
void lsh_clear_masked(const LshAttentionShape& s, AttentionRows<T> target, int64_t width);

// The sums over the rounds of a result such as `out` or a gradient. They are stored in the target itself, or
// in separate memory that finish() rounds to the type of the target.
template <class S>
class LshResult {
 public:
  using T = Compute<S>;
  LshResult(S* target, int64_t count) : target_(target), count_(count), sums_(kSame ? 0 : count) {}
  T* data() const {
    if constexpr (kSame)
      return target_;
    else
      return sums_.data();
  }
  void finish() const;

 private:
  static constexpr bool kSame = std::is_same_v<S, T>;
  S* target_;
  int64_t count_;
  Scratch<T> sums_;
};

}  // namespace tapeformer::cuda
