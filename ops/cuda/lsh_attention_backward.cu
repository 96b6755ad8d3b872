#include <algorithm>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/lsh_attention.h"

namespace tapeformer::cuda {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Computes the products of a tile of queries and keys: scores += q . q and gradients += g . v. If
// keys_are_rows is true, rows of the tile are keys and columns are queries; otherwise rows are queries.
template <class Tiles>
__device__ void pair_products(LshBlock<Tiles>& block, typename LshBlock<Tiles>::Scores& scores,
                              typename LshBlock<Tiles>::Scores& gradients, bool keys_are_rows) {
  const auto& tile = block.tile;
  const int32_t* const rows = keys_are_rows ? tile.keys : tile.queries;
  const int32_t* const columns = keys_are_rows ? tile.queries : tile.keys;
  constexpr Lanes kLanes = Lanes::along_depth;
  add_products<kLanes, kLanes>(scores, block.memory, block.in.s.dim, block.template queries<kLanes>(rows),
                               block.template queries<kLanes>(columns));
  const auto values = block.template values<kLanes>(tile.keys);
  const auto outputs = block.template gradients<kLanes>(tile.queries);
  add_products<kLanes, kLanes>(gradients, block.memory, block.in.s.value_dim,
                               keys_are_rows ? values : outputs, keys_are_rows ? outputs : values);
}

// Adds `result` to gq for the queries of a block. The first round overwrites gq.
template <class Tiles, class Tile, class T = typename Tiles::Value>
__device__ void add_query_gradient(const LshBlock<Tiles>& block, const Tile& result, const LshSlots& own,
                                   int64_t begin, int64_t column, bool first_round, T* gq) {
  const LshAttentionShape& s = block.in.s;
  const AttentionRows<T> target = make_contiguous_rows(gq, s.length, s.heads, s.dim);
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < result.kRowsEach; ++i) {
    const int64_t slot = begin + result.row(i);
    if (slot >= own.count) continue;
    T* const row = target.row(block.example, own.positions[slot], block.head);
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < result.kColumnsEach; ++j) {
      const int64_t feature = column + result.column(j);
      if (feature < s.dim) row[feature] = (first_round ? T{0} : row[feature]) + result.elements[i][j];
    }
  }
}

// Adds the gradients of a round to gk (batch, heads, length, dim) and gv for the keys of a block. The first
// round overwrites gk and gv.
template <class Tiles, class Tile, class T = typename Tiles::Value>
__device__ void add_key_gradients(const LshBlock<Tiles>& block, const Tile& to_key, const Tile& to_value,
                                  const LshSlots& own, int64_t begin, int64_t column, T* gk, T* gv) {
  const LshAttentionShape& s = block.in.s;
  const AttentionRows<T> to_v = make_contiguous_rows(gv, s.length, s.heads, s.value_dim);
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < to_key.kRowsEach; ++i) {
    const int64_t slot = begin + to_key.row(i);
    if (slot >= own.count) continue;
    const int32_t position = own.positions[slot];
    // If a query attends to no other position, the result of the query is the value at the same position.
    const bool alone = block.in.log_sums[block.log_sum_index(own.round, position)] == kInfinity<T> &&
                       (s.average_rounds || own.round == 0);
    const T share = s.average_rounds ? 1 / static_cast<T>(s.rounds) : T{1};
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < to_key.kColumnsEach; ++j) {
      const int64_t feature = column + to_key.column(j);
      if (feature < s.dim) {
        T& element = gk[(block.index * s.length + position) * s.dim + feature];
        element = (own.round == 0 ? T{0} : element) + to_key.elements[i][j];
      }
      if (feature < s.value_dim) {
        T& element = to_v.row(block.example, position, block.head)[feature];
        T sum = to_value.elements[i][j];
        if (alone) sum += share * block.g_at(position, feature);
        element = own.round == 0 ? sum : element + sum;
      }
    }
  }
}

// Adds to gq the gradient of one round's scores with respect to the queries. If the rounds are averaged
// (`mean`), the kernel also computes the deltas.
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void query_gradient_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* gq, T* deltas) {
  __shared__ LshTile<T> tile;
  LshBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshBlock<Tiles>::Scores;
  constexpr int kRowsEach = Scores::kRowsEach;
  const int64_t chunk = grid.chunk(), begin = grid.first_slot(), column = int64_t{blockIdx.y} * kWidth;
  if (chunk >= block.order.chunks || begin >= block.order.slots(chunk)) return;
  const LshSlots own = block.slots(round, chunk), before = block.slots_before(round, chunk);
  typename Tiles::template Tile<kTokens, kWidth> result;
  T log_sums[kRowsEach] = {}, delta[kRowsEach] = {};
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < kRowsEach; ++i) {
    const int64_t slot = begin + result.row(i);
    if (slot >= own.count) continue;
    const int64_t at = block.log_sum_index(round, own.positions[slot]);
    log_sums[i] = in.log_sums[at];
    if (!in.s.average_rounds) delta[i] = in.deltas[at];
  }
  // If rounds are averaged, a first pass over the keys computes the deltas.
  for (int pass = in.s.average_rounds ? 0 : 1; pass < 2; ++pass) {
    for (const bool back : {true, false}) {
      const LshSlots& keys = back ? before : own;
      for (int64_t key = 0; key < keys.count; key += kTokens) {
        __syncthreads();  // all threads have read the positions of the previous tile
        block.load_queries(own, begin, back);
        block.load_keys(keys, key);
        __syncthreads();
        block.count_multiplicities();
        Scores scores, gradients;
        pair_products(block, scores, gradients, false);
#pragma unroll(kUnrolled <T>)
        for (int i = 0; i < kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
          for (int j = 0; j < Scores::kColumnsEach; ++j) {
            const int at = Scores::column(j);
            const T weight = block.weight(Scores::row(i), at, scores.elements[i][j], log_sums[i]);
            T& gradient = gradients.elements[i][j];
            gradient *= block.dropped(Scores::row(i), at);
            if (pass == 0)
              delta[i] += weight * gradient;
            else
              gradient = block.score_gradient(at, weight, gradient, delta[i]);
          }
        if (pass == 1)
          add_products_of(result, gradients, block.memory,
                          block.template queries<Lanes::along_tile>(tile.keys, column));
      }
    }
    if (pass == 1) break;
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < kRowsEach; ++i) {
      delta[i] = Scores::template row_reduce<Plus>(delta[i]) * static_cast<T>(in.s.rounds);
      const int64_t slot = begin + result.row(i);
      if (slot < own.count && column == 0 && Scores::first_of_row())
        deltas[block.log_sum_index(round, own.positions[slot])] = delta[i];
    }
  }
  add_query_gradient(block, result, own, begin, column, round == 0, gq);
}

// Adds the gradients of one round with respect to keys and values to gk (batch, heads, length, dim) and gv.
// The gradients come from the queries of the same chunk and of the next chunk.
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void key_gradient_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* gk, T* gv) {
  __shared__ LshTile<T> tile;
  __shared__ T log_sums[kTokens], deltas[kTokens];  // log-sum-exps and deltas of the queries
  LshBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshBlock<Tiles>::Scores;
  const int64_t chunk = grid.chunk(), begin = grid.first_slot(), column = int64_t{blockIdx.y} * kWidth;
  if (chunk >= block.order.chunks || begin >= block.order.slots(chunk)) return;
  const LshSlots own = block.slots(round, chunk);
  const bool wants_key = column < in.s.dim, wants_value = column < in.s.value_dim;
  typename Tiles::template Tile<kTokens, kWidth> to_key, to_value;
  LshSlots next_slots;
  if (chunk + 1 < block.order.chunks) {
    next_slots = block.slots(round, chunk + 1);
  } else if (chunk > 0) {
    // The chunk after the last chunk is the first chunk of the round that wraps around to this chunk.
    const int64_t next = in.s.wrap == LshWrap::global ? (round + 1) % in.s.rounds : round;
    if (block.order.wrap(next).from != kNoCell) next_slots = block.slots(next, 0);
  }
  for (const bool back : {false, true}) {
    const LshSlots& queries = back ? next_slots : own;
    for (int64_t query = 0; query < queries.count; query += kTokens) {
      __syncthreads();  // all threads have read the positions of the previous tile
      block.load_queries(queries, query, back);
      block.load_keys(own, begin);
      if (threadIdx.x < kTokens) {
        const int32_t position = tile.queries[threadIdx.x];
        const int64_t row = position < 0 ? 0 : block.log_sum_index(queries.round, position);
        log_sums[threadIdx.x] = position < 0 ? T{0} : in.log_sums[row];
        deltas[threadIdx.x] = position < 0 ? T{0} : in.deltas[row];
      }
      __syncthreads();
      block.count_multiplicities();
      Scores scores, gradients;
      pair_products(block, scores, gradients, true);
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < Scores::kColumnsEach; ++j) {
        const int at = Scores::column(j);
#pragma unroll(kUnrolled <T>)
        for (int i = 0; i < Scores::kRowsEach; ++i) {
          const int key = Scores::row(i);
          T& weight = scores.elements[i][j];
          weight = block.weight(at, key, weight, log_sums[at]);
          const T dropped = block.dropped(at, key);
          T& gradient = gradients.elements[i][j];
          gradient = block.score_gradient(key, weight, dropped * gradient, deltas[at]);
          weight *= dropped;
        }
      }
      if (wants_value)
        add_products_of(to_value, scores, block.memory,
                        block.template gradients<Lanes::along_tile>(tile.queries, column));
      if (wants_key)
        add_products_of(to_key, gradients, block.memory,
                        block.template queries<Lanes::along_tile>(tile.queries, column));
    }
  }
  add_key_gradients(block, to_key, to_value, own, begin, column, gk, gv);
}

// Computes gq += gk - q (q . gk) / n² with one warp per row, where n² = |q|² + epsilon. The key is scale q /
// n, and gk includes the factor scale / n.
template <class S, class T = Compute<S>>
__global__ void add_key_gradient_kernel(LshInputs<S> in, const T* gk, AttentionRows<T> gq, int64_t count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const LshAttentionShape& s = in.s;
  for (int64_t i = first_element() / kWarpSize; i < count; i += element_stride() / kWarpSize) {
    const int64_t position = i % s.length, head = i / s.length % s.heads, example = i / s.length / s.heads;
    if (position >= lsh_valid_length(s, example)) continue;
    const S* const q = in.q.row(example, position, head);
    const T* const row = gk + i * s.dim;
    T product = 0;
    for (int64_t d = lane; d < s.dim; d += kWarpSize) product += convert_element<T>(q[d]) * row[d];
    const T inverse = in.factors[i] / static_cast<T>(s.scale);
    const T along = inverse * inverse * warp_reduce<Plus>(product);
    T* const target = gq.row(example, position, head);
    for (int64_t d = lane; d < s.dim; d += kWarpSize) target[d] += row[d] - along * convert_element<T>(q[d]);
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
  const Scratch<T> factors(rows), deltas(rows * s.log_sum_round_count()), gk(rows * s.dim);
  const LshResult<S> to_q(gq, rows * s.dim), to_v(gv, rows * s.value_dim);
  const AttentionRows<T> q_rows = make_contiguous_rows(to_q.data(), s.length, s.heads, s.dim);
  lsh_factors(s, q, factors.data());
  lsh_clear_masked(s, q_rows, s.dim);
  lsh_clear_masked(s, make_contiguous_rows(to_v.data(), s.length, s.heads, s.value_dim), s.value_dim);
  if (!s.average_rounds)
    row_dots<S>(g, make_contiguous_rows(out, s.length, s.heads, s.value_dim), nullptr, T{1}, s.batch,
                s.length, s.heads, s.value_dim, deltas.data());
  const LshMultipliers<T> multipliers(s);
  const LshInputs<S> in{
      s, orders.view(), q, v, g, factors.data(), log_sums, deltas.data(), multipliers.data()};
  const LshGrid grid(s);
  const int64_t widest = std::max(s.dim, s.value_dim);
  with_tile_width<T>(widest, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(query_gradient_kernel<Tiles, kWidth>, grid.launch<Tiles>(tiles_of(s.dim, kWidth)), in, grid,
             round, to_q.data(), deltas.data());
    // Queries of other rounds may also attend to the keys of a round, so all deltas are computed first.
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(key_gradient_kernel<Tiles, kWidth>, grid.launch<Tiles>(tiles_of(widest, kWidth)), in, grid,
             round, gk.data(), to_v.data());
  });
  launch(add_key_gradient_kernel<S>, over_elements(rows * kWarpSize), in, gk.data(), q_rows, rows);
  to_q.finish();
  to_v.finish();
}

template <class T>
struct LshBackwardKernels {
  inline static const Instances all{&lsh_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct LshBackwardKernels<float>; template struct LshBackwardKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LshBackwardKernels<double>;)

}  // namespace tapeformer::cuda
