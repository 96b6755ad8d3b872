#include <algorithm>
#include <type_traits>

#include "core/base/instances.h"
#include "ops/cuda/lsh_attention.h"
#include "ops/cuda/row_dots.h"

namespace tapeformer::cuda {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Computes two dot products for each pair of a query i and a key j of the tile. Adds q_i . q_j to `scores`,
// where q_j is the row of in.q at the position of the key. Adds g_i . v_j to `gradients`, where g_i is the
// gradient of the result and v_j is the value. If are_rows_keys is true, the rows of `scores` and `gradients`
// correspond to keys, and the columns to queries. If are_rows_keys is false, the rows correspond to queries,
// and the columns to keys.
template <class Tiles>
__device__ void compute_pair_products(LshThreadBlock<Tiles>& block,
                                      typename LshThreadBlock<Tiles>::Scores& scores,
                                      typename LshThreadBlock<Tiles>::Scores& gradients, bool are_rows_keys) {
  const auto& tile = block.tile;
  const int32_t* const rows = are_rows_keys ? tile.keys : tile.queries;
  const int32_t* const columns = are_rows_keys ? tile.queries : tile.keys;
  constexpr OperandLayout kLayout = kAlongDepth;
  add_products<kLayout, kLayout>(scores, block.memory, block.in.s.dim,
                                 block.template make_query_operand<kLayout>(rows),
                                 block.template make_query_operand<kLayout>(columns));
  const auto values = block.template make_value_operand<kLayout>(tile.keys);
  const auto result_gradients = block.template make_gradient_operand<kLayout>(tile.queries);
  add_products<kLayout, kLayout>(gradients, block.memory, block.in.s.value_dim,
                                 are_rows_keys ? values : result_gradients,
                                 are_rows_keys ? result_gradients : values);
}

// Computes deltas or gradients for a tile whose rows correspond to queries and whose columns correspond to
// keys. On input, `scores` and `gradients` contain the dot products of compute_pair_products(). If
// computes_deltas is false, replaces `gradients` by the gradients with respect to the dot products in
// `scores`. If computes_deltas is true, adds the terms of the columns of the calling thread to `delta`, from
// which the caller computes LshInputs::deltas. Element i of `log_sums` and `delta` corresponds to row i of
// the calling thread.
template <class Tiles, class Scores, class T = typename Tiles::Value>
__device__ void compute_query_rows(const LshThreadBlock<Tiles>& block,
                                   const T (&log_sums)[Scores::kRowsPerThread], bool computes_deltas,
                                   const Scores& scores, Scores& gradients,
                                   T (&delta)[Scores::kRowsPerThread]) {
  LshQuery queries[Scores::kRowsPerThread];
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) queries[i] = block.query(Scores::row(i));
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Scores::kColumnsPerThread; ++j) {
    const int key_index = Scores::column(j);
    const LshKey<T> key = block.key(key_index);
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      const int query_index = Scores::row(i);
      const T weight =
          block.compute_weight(queries[i], key, query_index, key_index, scores.elements[i][j], log_sums[i]);
      T& gradient = gradients.elements[i][j];
      gradient *= block.dropout_multiplier(query_index, key_index);
      if (computes_deltas)
        delta[i] += weight * gradient;
      else
        gradient = block.compute_score_gradient(key, weight, gradient, delta[i]);
    }
  }
}

// Computes gradients for a tile whose rows correspond to keys and whose columns correspond to queries. On
// input, `scores` and `gradients` contain the dot products of compute_pair_products(). On output, `scores`
// contains the attention weights after dropout, and `gradients` contains the gradients with respect to the
// dot products that `scores` contained on input. `log_sums` and `deltas` have one element for each query of
// the tile.
template <class Tiles, class Scores, class T = typename Tiles::Value>
__device__ void compute_key_rows(const LshThreadBlock<Tiles>& block, const T (&log_sums)[kTileTokens],
                                 const T (&deltas)[kTileTokens], Scores& scores, Scores& gradients) {
  LshKey<T> keys[Scores::kRowsPerThread];
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) keys[i] = block.key(Scores::row(i));
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Scores::kColumnsPerThread; ++j) {
    const int query_index = Scores::column(j);
    const LshQuery query = block.query(query_index);
    const T log_sum = log_sums[query_index], delta = deltas[query_index];
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      const int key_index = Scores::row(i);
      T& weight = scores.elements[i][j];
      weight = block.compute_weight(query, keys[i], query_index, key_index, weight, log_sum);
      const T multiplier = block.dropout_multiplier(query_index, key_index);
      T& gradient = gradients.elements[i][j];
      gradient = block.compute_score_gradient(keys[i], weight, multiplier * gradient, delta);
      weight *= multiplier;
    }
  }
}

// Adds the tile `result` to `gq`, which has the shape (batch, length, heads, dim). Row i of the tile
// corresponds to slot begin + i of query_slots, and column j to feature column + j. In the first round, the
// tile overwrites the elements of `gq`, so the caller need not initialise `gq`.
template <class Tiles, class Tile, class T = typename Tiles::Value>
__device__ void add_query_gradient(const LshThreadBlock<Tiles>& block, const Tile& result,
                                   const LshChunkSlots& query_slots, int64_t begin, int64_t column,
                                   bool is_first_round, T* gq) {
  const LshAttentionShape& s = block.in.s;
  const AttentionRows<T> target = make_contiguous_rows(gq, s.length, s.heads, s.dim);
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < result.kRowsPerThread; ++i) {
    const int64_t slot = begin + result.row(i);
    if (slot >= query_slots.count) continue;
    T* const row = target.row(block.example, query_slots.positions[slot], block.head);
#pragma unroll(kUnrollFactor <T>)
    for (int j = 0; j < result.kColumnsPerThread; ++j) {
      const int64_t feature = column + result.column(j);
      if (feature < s.dim) row[feature] = (is_first_round ? T{0} : row[feature]) + result.elements[i][j];
    }
  }
}

// Adds the tile key_gradient to gk (batch, heads, length, dim), and value_gradient to gv (batch, length,
// heads, value_dim). Row i of each tile corresponds to slot begin + i of key_slots, and column j to feature
// column + j. In the first round, the tiles overwrite the elements of gk and gv, so the caller need not
// initialise gk and gv.
template <class Tiles, class Tile, class T = typename Tiles::Value>
__device__ void add_key_gradients(const LshThreadBlock<Tiles>& block, const Tile& key_gradient,
                                  const Tile& value_gradient, const LshChunkSlots& key_slots, int64_t begin,
                                  int64_t column, T* gk, T* gv) {
  const LshAttentionShape& s = block.in.s;
  const AttentionRows<T> gv_rows = make_contiguous_rows(gv, s.length, s.heads, s.value_dim);
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < key_gradient.kRowsPerThread; ++i) {
    const int64_t slot = begin + key_gradient.row(i);
    if (slot >= key_slots.count) continue;
    const int32_t position = key_slots.positions[slot];
    // If a query attends to no other position, its result is the value at its own position. The gradient of
    // the result is then added to the gradient of this value.
    const bool is_alone =
        block.in.log_sums[block.get_log_sum_index(key_slots.round, position)] == kInfinity<T> &&
        (s.average_rounds || key_slots.round == 0);
    const T share = s.average_rounds ? 1 / static_cast<T>(s.rounds) : T{1};
#pragma unroll(kUnrollFactor <T>)
    for (int j = 0; j < key_gradient.kColumnsPerThread; ++j) {
      const int64_t feature = column + key_gradient.column(j);
      if (feature < s.dim) {
        T& element = gk[(block.head_index * s.length + position) * s.dim + feature];
        element = (key_slots.round == 0 ? T{0} : element) + key_gradient.elements[i][j];
      }
      if (feature < s.value_dim) {
        T& element = gv_rows.row(block.example, position, block.head)[feature];
        T sum = value_gradient.elements[i][j];
        if (is_alone) sum += share * block.load_gradient(position, feature);
        element = key_slots.round == 0 ? sum : element + sum;
      }
    }
  }
}

// Computes the gradients of the queries in one round, and adds them to gq. The gradients that come from the
// keys are added later by complete_query_gradient_kernel. If in.s.average_rounds is true, also computes the
// deltas of the round (LshInputs::deltas).
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void __launch_bounds__(Tiles::kThreads, choose_resident_lsh_blocks<Tiles, kWidth>())
    query_gradient_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* gq, T* deltas) {
  __shared__ LshTile<T> tile;
  LshThreadBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshThreadBlock<Tiles>::Scores;
  const int chunk = static_cast<int>(grid.chunk()), begin = static_cast<int>(grid.first_slot()),
            column = static_cast<int>(blockIdx.y) * kWidth;
  if (chunk >= block.order.chunk_count || begin >= block.order.slot_count(chunk)) return;
  const LshChunkSlots query_slots = block.find_slots(round, chunk);
  typename Tiles::template Tile<kTileTokens, kWidth> result;
  T log_sums[Scores::kRowsPerThread] = {}, delta[Scores::kRowsPerThread] = {};
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) {
    const int64_t slot = begin + result.row(i);
    if (slot >= query_slots.count) continue;
    const int64_t row = block.get_log_sum_index(round, query_slots.positions[slot]);
    log_sums[i] = in.log_sums[row];
    if (!in.s.average_rounds) delta[i] = in.deltas[row];
  }
  // The first pass over the keys computes the deltas, and the second pass computes the gradient. If
  // in.s.average_rounds is false, in.deltas already contains the deltas, and the first pass is skipped.
  for (int pass = in.s.average_rounds ? 0 : 1; pass < 2; ++pass) {
    block.visit_key_tiles(round, chunk, begin, [&] {
      Scores scores, gradients;
      compute_pair_products(block, scores, gradients, false);
      compute_query_rows(block, log_sums, pass == 0, scores, gradients, delta);
      if (pass == 1)
        add_tile_product(result, gradients, block.memory,
                         block.template make_query_operand<kAlongTile>(tile.keys, column));
    });
    if (pass == 1) break;
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      delta[i] = Scores::template reduce_row<Plus>(delta[i]) * static_cast<T>(in.s.rounds);
      const int64_t slot = begin + result.row(i);
      if (slot < query_slots.count && column == 0 && Scores::is_row_leader())
        deltas[block.get_log_sum_index(round, query_slots.positions[slot])] = delta[i];
    }
  }
  add_query_gradient(block, result, query_slots, begin, column, round == 0, gq);
}

// Adds the gradients of one round with respect to the keys and values to gk (batch, heads, length, dim) and
// gv. The keys of a chunk receive gradients from the queries of the same chunk and of the next chunk.
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void __launch_bounds__(Tiles::kThreads, choose_resident_lsh_blocks<Tiles, kWidth>())
    key_gradient_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* gk, T* gv) {
  __shared__ LshTile<T> tile;
  __shared__ T log_sums[kTileTokens], deltas[kTileTokens];  // log-sum-exps and deltas of the queries
  LshThreadBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshThreadBlock<Tiles>::Scores;
  const int chunk = static_cast<int>(grid.chunk()), begin = static_cast<int>(grid.first_slot()),
            column = static_cast<int>(blockIdx.y) * kWidth;
  if (chunk >= block.order.chunk_count || begin >= block.order.slot_count(chunk)) return;
  const bool needs_key_gradient = column < in.s.dim, needs_value_gradient = column < in.s.value_dim;
  typename Tiles::template Tile<kTileTokens, kWidth> key_gradient, value_gradient;
  // The queries of this chunk and of the next chunk are numbered together. Query n is in slot n of this chunk
  // if n < chunk_length, otherwise in slot n - chunk_length of the next chunk.
  __shared__ LshChunkSlots chunks[2];
  __shared__ int query_count;
  if (threadIdx.x == 0) {
    chunks[0] = block.find_slots(round, chunk);
    chunks[1] = block.find_look_ahead_slots(round, chunk);
    query_count =
        static_cast<int>(chunks[1].count > 0 ? in.s.chunk_length + chunks[1].count : chunks[0].count);
  }
  __syncthreads();
  if (const int j = static_cast<int>(threadIdx.x); j < kTileTokens) block.load_key(j, chunks[0], begin + j);
  const int length = static_cast<int>(in.s.chunk_length);
  for (int query = 0; query < query_count; query += kTileTokens) {
    __syncthreads();  // all threads have read the previous tile
    if (const int i = static_cast<int>(threadIdx.x); i < kTileTokens) {
      const bool is_next = query + i >= length;
      const LshChunkSlots& slots = chunks[is_next ? 1 : 0];
      const int32_t position =
          block.load_query(i, slots, query + i - (is_next ? length : 0), begin + (is_next ? 0 : length));
      if (position >= 0 && is_next)
        tile.query_codes[i] = block.order.find_look_back_cell(slots.round, tile.query_codes[i]).key_code;
      const int64_t row = position < 0 ? 0 : block.get_log_sum_index(slots.round, position);
      log_sums[i] = position < 0 ? T{0} : in.log_sums[row];
      deltas[i] = position < 0 ? T{0} : in.deltas[row];
    }
    __syncthreads();
    block.count_multiplicities();
    Scores scores, gradients;
    compute_pair_products(block, scores, gradients, true);
    compute_key_rows(block, log_sums, deltas, scores, gradients);
    if (needs_value_gradient)
      add_tile_product(value_gradient, scores, block.memory,
                       block.template make_gradient_operand<kAlongTile>(tile.queries, column));
    if (needs_key_gradient)
      add_tile_product(key_gradient, gradients, block.memory,
                       block.template make_query_operand<kAlongTile>(tile.queries, column));
  }
  add_key_gradients(block, key_gradient, value_gradient, chunks[0], begin, column, gk, gv);
}

// Adds the gradients that come from the keys to `gq`. The key of a position is scale * q / n, where n² = |q|²
// + epsilon. On input, gk is the gradient of the key, multiplied by scale / n. The kernel computes gq += gk -
// q (q . gk) / n². Each warp processes one row of `gq` at a time.
template <class S, class T = Compute<S>>
__global__ void complete_query_gradient_kernel(LshInputs<S> in, const T* gk, AttentionRows<T> gq,
                                               int64_t count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const LshAttentionShape& s = in.s;
  for (int64_t i = first_element() / kWarpSize; i < count; i += element_stride() / kWarpSize) {
    const int64_t position = i % s.length, head = i / s.length % s.heads, example = i / s.length / s.heads;
    if (position >= get_lsh_valid_length(s, example)) continue;
    const S* const q = in.q.row(example, position, head);
    const T* const row = gk + i * s.dim;
    T product = 0;
    for (int64_t d = lane; d < s.dim; d += kWarpSize) product += convert_element<T>(q[d]) * row[d];
    const T inverse = in.key_factors[i] / static_cast<T>(s.scale);
    const T projection = inverse * inverse * warp_reduce<Plus>(product);
    T* const target = gq.row(example, position, head);
    for (int64_t d = lane; d < s.dim; d += kWarpSize)
      target[d] += row[d] - projection * convert_element<T>(q[d]);
  }
}

}  // namespace

template <class S>
void lsh_attention_backward(Backend, const LshAttentionShape& s, AttentionRows<const S> q,
                            AttentionRows<const S> v, const int32_t* buckets, const S* out,
                            const Compute<S>* log_sums, AttentionRows<const S> g, S* gq, S* gv) {
  using T = Compute<S>;
  using Tiles = TilesFor<S>;
  const int64_t rows = s.batch * s.heads * s.length;
  const LshOrders orders(s, buckets);
  const Scratch<T> key_factors(rows), deltas(rows * s.log_sum_round_count()), gk(rows * s.dim);
  const LshRoundAccumulator<S> gq_result(gq, rows * s.dim), gv_result(gv, rows * s.value_dim);
  const AttentionRows<T> q_rows = make_contiguous_rows(gq_result.data(), s.length, s.heads, s.dim);
  compute_key_factors(s, q, key_factors.data());
  clear_masked_rows(s, q_rows, s.dim);
  clear_masked_rows(s, make_contiguous_rows(gv_result.data(), s.length, s.heads, s.value_dim), s.value_dim);
  if (!s.average_rounds)
    compute_row_dots<S>(g, make_contiguous_rows(out, s.length, s.heads, s.value_dim), s.batch, s.length,
                        s.heads, s.value_dim, deltas.data());
  const LshDropoutMultipliers<T> multipliers(s);
  const LshInputs<S> in{
      s, orders.view(), q, v, g, key_factors.data(), log_sums, deltas.data(), multipliers.data()};
  const LshGrid grid(s);
  const int64_t widest = std::max(s.dim, s.value_dim);
  visit_tile_width<T>(widest, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(query_gradient_kernel<Tiles, kWidth>, grid.make_launch<Tiles>(count_tiles(s.dim, kWidth)), in,
             grid, round, gq_result.data(), deltas.data());
    // With LshWrap::global, the keys of a round also receive gradients from queries of the next round.
    // Therefore the deltas of all rounds are computed before the gradients of the keys.
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(key_gradient_kernel<Tiles, kWidth>, grid.make_launch<Tiles>(count_tiles(widest, kWidth)), in,
             grid, round, gk.data(), gv_result.data());
  });
  launch(complete_query_gradient_kernel<S>, make_elementwise_launch(rows * kWarpSize), in, gk.data(), q_rows,
         rows);
  gq_result.write_rounded_result();
  gv_result.write_rounded_result();
}

template <class T>
struct LshBackwardKernels {
  inline static const FunctionInstances all{&lsh_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct LshBackwardKernels<float>; template struct LshBackwardKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LshBackwardKernels<double>;)

}  // namespace tapeformer::cuda
