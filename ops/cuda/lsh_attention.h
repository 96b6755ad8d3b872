// Types that the LSH attention kernels share. A kernel processes tiles of kTileTokens queries and kTileTokens
// keys, whose rows are gathered by position.
#pragma once

#include <limits>
#include <type_traits>

#include "ops/cuda/lsh_order.h"
#include "ops/cuda/tensor_tiles.h"

namespace tapeformer::cuda {

// The input tensors of a kernel. In a forward pass, g, log_sums and deltas are not set.
template <class S>
struct LshInputs {
  using T = Compute<S>;
  LshAttentionShape s;
  LshOrderView order;
  AttentionRows<const S> q, v, g;
  const T* key_factors;  // (batch, heads, length); a key is the query at the same position times the factor
  const T* log_sums;     // (batch, heads, s.log_sum_round_count(), length), the log-sum-exps of the scores
  // The dot products of the rows of `g` and `out`, (batch, heads, s.log_sum_round_count(), length). If
  // s.average_rounds is true, `out` is the result of one round, otherwise `out` is the final result.
  const T* deltas;
  // The dropout multipliers of a chunk, (chunk_length + kTileTokens, 2 * chunk_length + kTileTokens), or null
  // without dropout. Row i contains the multipliers of the query in slot i of the chunk. The first
  // chunk_length columns contain the multipliers of the keys of the previous chunk, and the next chunk_length
  // columns contain the multipliers of the keys of the same chunk. Tiles can extend beyond the end of a
  // chunk, so the array has additional rows and columns, which are 0.
  const T* dropout_multipliers;
};

// Returns the number of elements in a row of LshInputs::dropout_multipliers.
__host__ __device__ inline int get_multiplier_stride(const LshAttentionShape& s) {
  return static_cast<int>(2 * s.chunk_length) + kTileTokens;
}

// The positions of one chunk in one round, sorted by bucket. The index of an element of `positions` is called
// the slot of the element.
struct LshChunkSlots {
  const int32_t* positions;  // (count,)
  int64_t count, round;

  // Returns the position in slot `slot`, or -1 if the slot does not exist.
  __device__ int32_t position(int64_t slot) const { return slot < count ? positions[slot] : -1; }
};

// A tile of queries and keys in shared memory. Slots without a query or key have the position -1.
template <class T>
struct LshTile {
  int32_t queries[kTileTokens], keys[kTileTokens];  // positions
  // Query i can attend to key j if query_codes[i] is equal to key_codes[j]. A code identifies a cell: the
  // positions of a bucket in one chunk, or the whole chunk if across_buckets is true. Queries and keys have
  // the code of their own cell, with two exceptions:
  // - In visit_key_tiles(), a key of the previous chunk has the code of the cell whose queries attend to the
  //   key.
  // - In key_gradient_kernel, a query of the next chunk has the code of its look-back cell, the cell of the
  //   previous chunk to which the query attends.
  int32_t query_codes[kTileTokens], key_codes[kTileTokens];
  T key_factors[kTileTokens];
  // multiplier_offsets[i] is the index, in LshInputs::dropout_multipliers, of the multiplier for query i and
  // the first key of the tile.
  uint32_t multiplier_offsets[kTileTokens];
  // Multiplicity of each pair of a query and a key: the number of times that the query attends to the key in
  // all rounds. Set only if normalize_duplicates is true.
  uint16_t multiplicities[kTileTokens][kTileTokens + 2];
};

// A query of a tile, in registers. `code` is the element of LshTile::query_codes for the query.
// LshThreadBlock::attends() subtracts `offset` from the position of a key.
struct LshQuery {
  int32_t code;
  uint32_t offset;
};
// A key of a tile: its elements of LshTile::keys, key_codes and key_factors.
template <class T>
struct LshKey {
  int32_t position, code;
  T factor;
};

// An operand of a matrix product (RowsOperand in ops/cuda/tile_product.h) whose rows are gathered. Row r of
// the operand contains the features of the token at positions[r], beginning with feature `first_feature`.
// Rows at negative positions are zero.
template <OperandLayout kLayout, class S>
struct LshOperand {
  static constexpr bool kSumsOverFeatures = kLayout == kAlongDepth;
  AttentionRows<const S> rows;  // rows.data points to the row at position 0
  int width;
  bool is_aligned;           // whether 16-byte loads can read the rows
  const int32_t* positions;  // (kTileTokens,), in shared memory
  int first_feature;

  __device__ bool can_load_pack() const { return is_aligned; }
  __device__ Compute<S> operator()(int64_t d, int64_t i) const {
    const int32_t position = positions[kSumsOverFeatures ? i : d];
    const int feature = first_feature + static_cast<int>(kSumsOverFeatures ? d : i);
    return position >= 0 && feature < width
               ? convert_element<Compute<S>>(rows.data[position * rows.length_stride + feature])
               : Compute<S>{0};
  }
  // Returns 8 adjacent elements, beginning with operator()(d, i). The elements are adjacent along d if
  // kLayout is kAlongDepth, otherwise along i. Requires can_load_pack().
  __device__ Pack<S> load_pack(int64_t d, int64_t i) const {
    const int32_t position = positions[kSumsOverFeatures ? i : d];
    const int feature = first_feature + static_cast<int>(kSumsOverFeatures ? d : i);
    return Pack<S>::load_or_zero(rows.data + position * rows.length_stride + feature,
                                 position >= 0 && feature < width);
  }
};

// The operations of a thread block, which processes kTileTokens slots of a chunk in one head and round.
template <class Tiles>
struct LshThreadBlock {
  using T = typename Tiles::Value;
  using S = typename Tiles::Stored;
  const LshInputs<S>& in;
  LshTile<T>& tile;
  typename Tiles::Memory memory;
  int head_index, example, head;  // head_index is example * heads + head
  LshHeadOrder order;
  T round_share;  // factor of the weights of a round: 1 / rounds if average_rounds is true, otherwise 1

  using Scores = typename Tiles::template Tile<kTileTokens, kTileTokens>;
  static constexpr uint32_t kCausalOffset = uint32_t{1} << 31;

  // `shared` must be in shared memory.
  __device__ LshThreadBlock(const LshInputs<S>& inputs, LshTile<T>& shared, int64_t index)
      : in(inputs),
        tile(shared),
        head_index(static_cast<int>(index)),
        example(static_cast<int>(index / inputs.s.heads)),
        head(static_cast<int>(index % inputs.s.heads)),
        order(inputs.s, inputs.order, head_index),
        round_share(inputs.s.average_rounds ? 1 / static_cast<T>(inputs.s.rounds) : T{1}) {}

  // Returns the slots of chunk `chunk` of a round.
  __device__ LshChunkSlots find_slots(int64_t round, int64_t chunk) const {
    return {order.positions(round, chunk), order.slot_count(chunk), round};
  }
  // Returns the slots of the chunk before `chunk`. The queries of `chunk` also attend to keys in these slots.
  // The chunk before chunk 0 is the last chunk of round order.wrap_pair(round).key_round. If chunk 0 has no
  // previous chunk, the result has no slots.
  __device__ LshChunkSlots find_look_back_slots(int64_t round, int64_t chunk) const {
    if (chunk > 0) return find_slots(round, chunk - 1);
    const LshWrapPair wrap_pair = order.wrap_pair(round);
    return wrap_pair.query_code == kNoCell ? LshChunkSlots{}
                                           : find_slots(wrap_pair.key_round, order.chunk_count - 1);
  }

  // Returns the slots of the chunk whose queries look back to `chunk`. If `chunk` is not the last chunk, the
  // next chunk looks back to `chunk`. The chunk that looks back to the last chunk is the first chunk of the
  // same round (LshWrap::round) or of the next round (LshWrap::global). If no chunk looks back to `chunk`,
  // the result has no slots.
  __device__ LshChunkSlots find_look_ahead_slots(int64_t round, int64_t chunk) const {
    if (chunk + 1 < order.chunk_count) return find_slots(round, chunk + 1);
    // If round `next` has a wrap pair, the queries in the first chunk of round `next` attend to keys in the
    // last chunk of round `round`.
    const int64_t next = in.s.wrap == LshWrap::global ? (round + 1) % in.s.rounds : round;
    return chunk > 0 && order.wrap_pair(next).query_code != kNoCell ? find_slots(next, 0) : LshChunkSlots{};
  }

  // Sets query i of the tile to the query in slot `slot` of `slots`. If the slot does not exist, sets the
  // position of query i to -1. `first_column` is the column of in.dropout_multipliers for the first key of
  // the tile. Returns the position of the query, or -1 if the slot does not exist.
  __device__ int32_t load_query(int i, const LshChunkSlots& slots, int64_t slot, int64_t first_column) {
    const int32_t position = slots.position(slot);
    tile.queries[i] = position;
    tile.query_codes[i] = position < 0 ? kNoCell : order.cell_code(slots.round, position);
    tile.multiplier_offsets[i] = static_cast<uint32_t>(slot * get_multiplier_stride(in.s) + first_column);
    return position;
  }
  // Sets key j of the tile to the key in slot `slot` of `slots`. If the slot does not exist, sets the
  // position of key j to -1. Returns the position of the key, or -1 if the slot does not exist.
  __device__ int32_t load_key(int j, const LshChunkSlots& slots, int64_t slot) {
    const int32_t position = slots.position(slot);
    tile.keys[j] = position;
    tile.key_factors[j] = position < 0 ? T{0} : in.key_factors[head_index * in.s.length + position];
    tile.key_codes[j] = position < 0 ? kEmptySlot : order.cell_code(slots.round, position);
    return position;
  }
  // Calls function() for each tile of keys to which the queries in the slots [begin, begin + kTileTokens) of
  // a chunk attend. Before each call, loads these queries and keys into `tile`, and computes
  // LshTile::multiplicities. If k < chunk_length, key k is in slot k of the previous chunk. If k >=
  // chunk_length, key k is in slot k - chunk_length of the same chunk. All threads of the block must call
  // visit_key_tiles().
  template <class Function>
  __device__ void visit_key_tiles(int64_t round, int64_t chunk, int64_t begin, Function function) {
    __shared__ LshChunkSlots chunks[2];
    __syncthreads();  // all threads have left an earlier call
    if (threadIdx.x == 0) {
      chunks[0] = find_look_back_slots(round, chunk);
      chunks[1] = find_slots(round, chunk);
    }
    __syncthreads();
    const int64_t length = in.s.chunk_length, end = length + chunks[1].count,
                  first = chunks[0].count > 0 ? 0 : length / kTileTokens * kTileTokens;
    for (int64_t key = first; key < end; key += kTileTokens) {
      __syncthreads();  // all threads have read the previous tile
      if (const int i = static_cast<int>(threadIdx.x); i < kTileTokens) {
        load_query(i, chunks[1], begin + i, key);
        const bool is_own = key + i >= length;
        const int32_t position = load_key(i, chunks[is_own ? 1 : 0], key + i - (is_own ? length : 0));
        if (position >= 0 && !is_own)
          tile.key_codes[i] = order.find_attending_cell(round, chunk, tile.key_codes[i]);
      }
      __syncthreads();
      count_multiplicities();
      function();
    }
  }
  __device__ LshQuery query(int i) const {
    return {tile.query_codes[i],
            static_cast<uint32_t>(tile.queries[i]) + 1 + (in.s.causal ? kCausalOffset : 0)};
  }
  __device__ LshKey<T> key(int j) const { return {tile.keys[j], tile.key_codes[j], tile.key_factors[j]}; }
  // Returns whether `query` attends to `key`. A query attends to a key only if their codes are equal. With a
  // causal mask, the key must also be at an earlier position than the query. Without a causal mask, the query
  // and the key must also be at different positions. One unsigned comparison checks the positions:
  // key.position - query.offset is less than `limit` exactly if the mask allows the pair.
  __device__ bool attends(const LshQuery& query, const LshKey<T>& key) const {
    const uint32_t limit = ~uint32_t{0} - (in.s.causal ? kCausalOffset : 0);
    return query.code == key.code && static_cast<uint32_t>(key.position) - query.offset < limit;
  }

  // Returns element `feature` of the row of `rows` at `position` for this head. Returns 0 if position < 0 or
  // feature >= width.
  __device__ T load_element(const AttentionRows<const S>& rows, int32_t position, int64_t feature,
                            int64_t width) const {
    return position >= 0 && feature < width ? convert_element<T>(rows.row(example, position, head)[feature])
                                            : T{0};
  }
  template <OperandLayout kLayout>
  __device__ LshOperand<kLayout, S> make_operand(const AttentionRows<const S>& tensor, int64_t width,
                                                 const int32_t* positions, int64_t first_feature) const {
    AttentionRows<const S> rows = tensor;
    rows.data = tensor.row(example, 0, head);
    const StridedRows<S> strided_rows{.data = rows.data, .stride = rows.length_stride, .width = width};
    return {rows, static_cast<int>(width), strided_rows.is_aligned_to_packs(), positions,
            static_cast<int>(first_feature)};
  }
  // The following functions return an operand with the rows of q, v or g at `positions`. The first feature of
  // the operand is feature `first_feature` of the rows.
  template <OperandLayout kLayout>
  __device__ auto make_query_operand(const int32_t* positions, int64_t first_feature = 0) const {
    return make_operand<kLayout>(in.q, in.s.dim, positions, first_feature);
  }
  template <OperandLayout kLayout>
  __device__ auto make_value_operand(const int32_t* positions, int64_t first_feature = 0) const {
    return make_operand<kLayout>(in.v, in.s.value_dim, positions, first_feature);
  }
  template <OperandLayout kLayout>
  __device__ auto make_gradient_operand(const int32_t* positions, int64_t first_feature = 0) const {
    return make_operand<kLayout>(in.g, in.s.value_dim, positions, first_feature);
  }
  // The following functions return element `feature` of the row of v or g at `position`.
  __device__ T load_value(int32_t position, int64_t feature) const {
    return load_element(in.v, position, feature, in.s.value_dim);
  }
  __device__ T load_gradient(int32_t position, int64_t feature) const {
    return load_element(in.g, position, feature, in.s.value_dim);
  }
  // Returns the index, in LshInputs::log_sums and LshInputs::deltas, of the element for a round and a
  // position of this head.
  __device__ int64_t get_log_sum_index(int64_t round, int64_t position) const {
    return (head_index * in.s.log_sum_round_count() + (in.s.average_rounds ? round : 0)) * in.s.length +
           position;
  }
  // Computes the multiplicities of the tile if normalize_duplicates is true. All threads of the block must
  // call count_multiplicities() after load_query(), load_key() and a barrier, and must synchronise before
  // they read the multiplicities. count_multiplicities() uses the dynamic shared memory as workspace.
  __device__ void count_multiplicities() {
    if (!in.s.normalize_duplicates) return;
    // The codes of the cells to which a query attends in a round. If a cell does not exist, no key has the
    // code of the cell.
    //   values[0]   the cell of the query
    //   values[1]   the look-back cell in the same round, or kNoCell if values[0] is wrap_pair.query_code
    //   values[2]   the look-back cell in round wrap_pair.key_round, or kNoCell for all other values[0]
    //   values[3]   not used
    //
    // Even and odd rounds use separate shared memory, so one barrier per round is enough.
    using Codes = Pack<int32_t>;
    constexpr int kQueryStride = Tiles::kThreads / kTileTokens,
                  kQueries = kTileTokens / kQueryStride;  // queries per thread
    static_assert(2 * kTileTokens * sizeof(Codes) <= Tiles::Memory::kSliceBytes);
    int32_t* const shared_codes = get_dynamic_shared_memory<int32_t>();
    const int thread = static_cast<int>(threadIdx.x), j = thread % kTileTokens, first = thread / kTileTokens;
    const int32_t query = tile.queries[j], key = tile.keys[j];
    int counts[kQueries] = {};
#pragma unroll 1
    for (int64_t round = 0; round < in.s.rounds; ++round) {
      int32_t* const codes = shared_codes + round % 2 * kTileTokens * Codes::kSize;
      const LshWrapPair wrap_pair = order.wrap_pair(round);
      if (thread < kTileTokens) {
        const int32_t code = query >= 0 ? order.cell_code(round, query) : kNoCell;
        const bool is_wrapped = code == wrap_pair.query_code;
        const Codes cell_codes{
            {code, is_wrapped ? kNoCell : code - 1, is_wrapped ? wrap_pair.key_code : kNoCell, 0}};
        cell_codes.store(codes + j * Codes::kSize);
      }
      const int32_t code = key >= 0 ? order.cell_code(round, key) : kEmptySlot;
      const int32_t wrap_code = key >= 0 ? order.cell_code(wrap_pair.key_round, key) : kEmptySlot;
      __syncthreads();
#pragma unroll(kUnrollFactor <T>)
      for (int n = 0; n < kQueries; ++n) {
        const Codes query_codes = Codes::load(codes + (first + n * kQueryStride) * Codes::kSize);
        counts[n] += (code == query_codes.values[0]) + (code == query_codes.values[1]) +
                     (wrap_code == query_codes.values[2]);
      }
    }
#pragma unroll(kUnrollFactor <T>)
    for (int n = 0; n < kQueries; ++n)
      tile.multiplicities[first + n * kQueryStride][j] = static_cast<uint16_t>(counts[n]);
  }
  // Returns `weight` divided by the multiplicity of query i and key j if normalize_duplicates is true,
  // otherwise `weight`. Query i must attend to key j.
  __device__ T divide_by_multiplicity(T weight, int i, int j) const {
    if (!in.s.normalize_duplicates) return weight;
    return weight * fast_reciprocal(static_cast<T>(tile.multiplicities[i][j]));
  }

  // Returns the attention weight of query i and key j in the current round, before dropout. The weight is 0
  // if the query does not attend to the key. `query` and `key` are query(i) and key(j). `product` is the dot
  // product of query i and the query at the position of key j. `log_sum` is the element of
  // LshInputs::log_sums that corresponds to query i.
  __device__ T compute_weight(const LshQuery& query, const LshKey<T>& key, int i, int j, T product,
                              T log_sum) const {
    if (!attends(query, key)) return 0;
    return divide_by_multiplicity(round_share * FastDeviceMath::exp(key.factor * product - log_sum), i, j);
  }
  // Returns the dropout multiplier of query i and key j. Without dropout, returns 1.
  __device__ T dropout_multiplier(int i, int j) const {
    return in.dropout_multipliers ? in.dropout_multipliers[tile.multiplier_offsets[i] + j] : T{1};
  }
  // Returns the gradient with respect to the argument `product` of compute_weight(). `key` is key(j), and
  // `weight` is the result of compute_weight(). `g_v` is the dropout multiplier times the dot product of the
  // rows of g for query i and of v for key j. `delta` is the element of LshInputs::deltas that corresponds to
  // query i.
  __device__ T compute_score_gradient(const LshKey<T>& key, T weight, T g_v, T delta) const {
    return weight == 0 ? T{0} : weight * (g_v - delta) * key.factor;
  }
};

// Returns the minimum number of resident thread blocks per multiprocessor, for __launch_bounds__. With a
// larger minimum, nvcc would spill registers to local memory.
template <class Tiles, int kWidth>
constexpr int choose_resident_lsh_blocks() {
  return Tiles::kThreads > kTensorCoreThreads ? 1 : kWidth > 32 ? 2 : 3;
}

// A grid of thread blocks. Each thread block along x processes kTileTokens slots of one chunk of one head.
// blockIdx.y selects the columns of the result that a thread block computes.
struct LshGrid {
  int64_t head_count, chunks_per_head, blocks_per_chunk;

  explicit LshGrid(const LshAttentionShape& s)
      : head_count(s.batch * s.heads),
        chunks_per_head(count_tiles(s.length, s.chunk_length)),
        blocks_per_chunk(count_tiles(s.chunk_length, kTileTokens)) {}
  // Returns a launch configuration with this grid and `column_tiles` thread blocks along y.
  template <class Tiles>
  LaunchConfig make_launch(int64_t column_tiles, SourceLocation where = SourceLocation::current()) const {
    return make_tile_launch(head_count * chunks_per_head * blocks_per_chunk, column_tiles, Tiles::kThreads,
                            Tiles::Memory::kBytes, where);
  }
  // Return the head (example * heads + head), the chunk and the first slot of the calling block.
  __device__ int64_t head() const { return blockIdx.x / (chunks_per_head * blocks_per_chunk); }
  __device__ int64_t chunk() const { return blockIdx.x / blocks_per_chunk % chunks_per_head; }
  __device__ int64_t first_slot() const { return blockIdx.x % blocks_per_chunk * kTileTokens; }
};

// Computes and owns LshInputs::dropout_multipliers. If dropout is not active, data() returns null. The
// constructor throws DeviceError if dropout is active and chunk_length is too large (over about 46,000).
template <class T>
class LshDropoutMultipliers {
 public:
  explicit LshDropoutMultipliers(const LshAttentionShape& s);
  const T* data() const { return is_active_ ? table_.data() : nullptr; }

 private:
  bool is_active_;
  Scratch<T> table_;
};

// Computes LshInputs::key_factors: scale / sqrt(|q|² + epsilon) for each position of each head.
template <class S>
void compute_key_factors(const LshAttentionShape& s, AttentionRows<const S> q, Compute<S>* key_factors);
// Sets the rows of masked positions to 0. `width` is the number of elements of a row.
template <class T>
void clear_masked_rows(const LshAttentionShape& s, AttentionRows<T> target, int64_t width);

// The sum over rounds of an output tensor, such as `out` or a gradient, in the compute type. If S is the
// compute type, the sum is stored in `target`. Otherwise the sum is stored in separate memory, and
// write_rounded_result() writes it to `target`, rounded to S. `count` is the number of elements of the
// tensor.
template <class S>
class LshRoundAccumulator {
 public:
  using T = Compute<S>;
  LshRoundAccumulator(S* target, int64_t count)
      : target_(target), count_(count), sums_(kIsSameType ? 0 : count) {}
  T* data() const {
    if constexpr (kIsSameType)
      return target_;
    else
      return sums_.data();
  }
  void write_rounded_result() const;

 private:
  static constexpr bool kIsSameType = std::is_same_v<S, T>;
  S* target_;
  int64_t count_;
  Scratch<T> sums_;
};

}  // namespace tapeformer::cuda
