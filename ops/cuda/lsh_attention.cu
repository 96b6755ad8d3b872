#include "ops/cuda/lsh_attention.h"

#include <type_traits>

#include "core/base/instances.h"
#include "ops/kernels/online_softmax.h"

namespace tapeformer::cuda {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Computes LshInputs::key_factors. Each warp processes one row at a time.
template <class S, class T = Compute<S>>
__global__ void key_factors_kernel(LshAttentionShape s, AttentionRows<const S> q, int64_t count,
                                   T* key_factors) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int64_t i = first_element() / kWarpSize; i < count; i += element_stride() / kWarpSize) {
    const int64_t position = i % s.length, head = i / s.length % s.heads, example = i / s.length / s.heads;
    const S* const row = q.row(example, position, head);
    T square = 0;
    for (int64_t d = lane; d < s.dim; d += kWarpSize) {
      const T element = convert_element<T>(row[d]);
      square += element * element;
    }
    square = warp_reduce<Plus>(square);
    if (lane == 0) key_factors[i] = static_cast<T>(s.scale) / std::sqrt(square + static_cast<T>(s.epsilon));
  }
}

template <class T>
__global__ void clear_masked_kernel(LshAttentionShape s, AttentionRows<T> target, int64_t width,
                                    int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / width, head = row % s.heads, position = row / s.heads % s.length;
    const int64_t example = row / s.heads / s.length;
    if (position >= get_lsh_valid_length(s, example)) target.row(example, position, head)[i % width] = 0;
  }
}

template <class S>
__global__ void round_sums_kernel(const Compute<S>* sums, S* target, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) target[i] = convert_element<S>(sums[i]);
}

// Returns the number of elements of LshInputs::dropout_multipliers. Throws DeviceError if the indices of the
// elements do not fit into LshTile::multiplier_offsets.
int64_t count_multipliers(const LshAttentionShape& s) {
  const int64_t count = (s.chunk_length + kTileTokens) * (2 * s.chunk_length + kTileTokens);
  if (count > std::numeric_limits<uint32_t>::max())
    throw DeviceError(concat_text("lsh_attention: dropout on a CUDA device needs shorter chunks than ",
                                  s.chunk_length, " positions"));
  return count;
}

// Computes LshInputs::dropout_multipliers.
template <class T>
__global__ void multipliers_kernel(LshAttentionShape s, DropoutMultipliers<T> dropout, T* table,
                                   int64_t count) {
  const int stride = get_multiplier_stride(s);
  const int64_t columns = 2 * s.chunk_length;
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / stride, column = i % stride;
    const bool exists = row < s.chunk_length && column < columns;
    table[i] = exists ? dropout.multiplier(row * columns + column) : T{0};
  }
}

template <class T>
__global__ void fill_infinite_kernel(T* target, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) target[i] = kInfinity<T>;
}

// The online softmax of one query over the keys of one round. `maximum` is the maximum score so far, and
// `sum` is the sum of exp(score - maximum) / multiplicity. LshTile::multiplicities defines the multiplicity.
template <class T>
struct RowSoftmax {
  T maximum = -kInfinity<T>, sum = 0;
};

// Computes the score of each query (row) and key (column) of the tile. On input, element (i, j) of `scores`
// is the dot product of two rows of in.q, the row of query i and the row at the position of key j. Each dot
// product is multiplied by the factor of the key. If a query does not attend to a key, the score is set to
// -inf.
template <class Tiles, class Scores>
__device__ void compute_scores(const LshThreadBlock<Tiles>& block, Scores& scores) {
  using T = typename Tiles::Value;
  LshQuery queries[Scores::kRowsPerThread];
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) queries[i] = block.query(Scores::row(i));
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Scores::kColumnsPerThread; ++j) {
    const LshKey<T> key = block.key(Scores::column(j));
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      T& score = scores.elements[i][j];
      score = block.attends(queries[i], key) ? key.factor * score : -kInfinity<T>;
    }
  }
}

// Adds a tile of keys to `softmax`, the online softmax of the query in row i of `scores`. Replaces each score
// by exp(score - maximum) * (dropout multiplier) / multiplicity. Returns the factor by which the caller must
// multiply the sum of the weighted values of the earlier tiles.
template <class Tiles, class Scores, class T = typename Tiles::Value>
__device__ T update_row_softmax(const LshThreadBlock<Tiles>& block, Scores& scores, int i,
                                RowSoftmax<T>& softmax) {
  const int row = Scores::row(i);
  T largest = -kInfinity<T>;
  for (const T score : scores.elements[i]) largest = Maximum::apply(largest, score);
  const auto update = update_online_softmax(softmax.maximum, Scores::template reduce_row<Maximum>(largest));
  T total = 0;
#pragma unroll(kUnrollFactor <T>)
  for (int j = 0; j < Scores::kColumnsPerThread; ++j) {
    T& score = scores.elements[i][j];
    const bool is_attended = score != -kInfinity<T>;
    score = FastDeviceMath::exp(score - update.shift);
    if (is_attended) score = block.divide_by_multiplicity(score, row, Scores::column(j));
    total += score;
    score *= block.dropout_multiplier(row, Scores::column(j));
  }
  softmax.maximum = update.maximum;
  softmax.sum = update.rescale_factor * softmax.sum + Scores::template reduce_row<Plus>(total);
  return update.rescale_factor;
}

// The factors with which the weighted sum of a round is added to the result of a query:
//   result = old_factor * result + new_factor * weighted_sum
// weighted_sum is the sum of the values of the round, each multiplied by its weight. If is_alone is true, the
// query attends to no key, and weighted_sum is the value at the position of the query.
template <class T>
struct RoundUpdate {
  T old_factor, new_factor;
  // Log-sum-exp of the scores of the query in this round, or in all rounds up to this round if average_rounds
  // is false
  T log_sum;
  bool is_alone;
};

// Returns the RoundUpdate of a query for average_rounds = true, where the result of the query is the mean of
// the results of all rounds.
template <class T>
__device__ RoundUpdate<T> compute_mean_update(const RowSoftmax<T>& row, int64_t rounds, bool is_first) {
  const bool is_alone = row.sum == 0;
  const T share = 1 / static_cast<T>(rounds);
  return {is_first ? T{0} : T{1}, is_alone ? share : share / row.sum,
          is_alone ? kInfinity<T> : row.maximum + std::log(row.sum), is_alone};
}

// Returns the RoundUpdate of a query for average_rounds = false, where the result of the query is computed by
// one softmax over the keys of all rounds. `past_log_sum` is the log-sum-exp of the scores of the earlier
// rounds, or -inf in the first round.
template <class T>
__device__ RoundUpdate<T> compute_softmax_update(const RowSoftmax<T>& row, T past_log_sum, bool is_last) {
  const T largest = Maximum::apply(past_log_sum, row.maximum),
          shift = largest == -kInfinity<T> ? T{0} : largest;
  const T total = std::exp(past_log_sum - shift) + std::exp(row.maximum - shift) * row.sum;
  const T log_sum = total == 0 ? -kInfinity<T> : shift + std::log(total);  // propagates NaN
  const bool is_alone = is_last && total == 0;
  return {is_alone || total == 0 ? T{0} : std::exp(past_log_sum - log_sum),
          is_alone     ? T{1}
          : total == 0 ? T{0}
                       : std::exp(row.maximum - log_sum),
          log_sum, is_alone};
}

// Returns compute_softmax_update() of a row, and updates *running_log_sum, the log-sum-exp of the scores of
// all rounds up to the current round. If is_alone is true, log_sum of the returned value is infinite. All
// threads that hold elements of the row must call update_running_log_sum(). If the row has no query,
// running_log_sum is null.
template <class Scores, class T>
__device__ RoundUpdate<T> update_running_log_sum(const RowSoftmax<T>& row, T* running_log_sum, bool is_first,
                                                 bool is_last) {
  RoundUpdate<T> update =
      compute_softmax_update(row, is_first || !running_log_sum ? -kInfinity<T> : *running_log_sum, is_last);
  __syncwarp();  // all threads of the row have read *running_log_sum
  if (running_log_sum && Scores::is_row_leader()) *running_log_sum = update.log_sum;
  if (update.is_alone) update.log_sum = kInfinity<T>;
  return update;
}

// Adds the result of one round to `out`. The queries of a chunk attend to the keys of the same chunk and of
// the previous chunk. `running_log_sums`, with shape (column tiles, batch * heads, length), holds the
// log-sum-exps of the earlier rounds. Different thread blocks compute the column tiles of the result, so each
// column tile has a separate copy of the log-sum-exps.
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void __launch_bounds__(Tiles::kThreads, choose_resident_lsh_blocks<Tiles, kWidth>())
    forward_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* out, T* log_sums, T* running_log_sums) {
  __shared__ LshTile<T> tile;
  LshThreadBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshThreadBlock<Tiles>::Scores;
  const int64_t chunk = grid.chunk(), begin = grid.first_slot(), column = int64_t{blockIdx.y} * kWidth;
  if (chunk >= block.order.chunk_count || begin >= block.order.slot_count(chunk)) return;
  const LshChunkSlots query_slots = block.find_slots(round, chunk);
  typename Tiles::template Tile<kTileTokens, kWidth> result;
  RowSoftmax<T> rows[Scores::kRowsPerThread];
  block.visit_key_tiles(round, chunk, begin, [&] {
    Scores scores;
    add_products<kAlongDepth, kAlongDepth>(scores, block.memory, in.s.dim,
                                           block.template make_query_operand<kAlongDepth>(tile.queries),
                                           block.template make_query_operand<kAlongDepth>(tile.keys));
    compute_scores(block, scores);
#pragma unroll(kUnrollFactor <T>)
    for (int i = 0; i < Scores::kRowsPerThread; ++i) {
      const T rescale = update_row_softmax(block, scores, i, rows[i]);
      for (T& element : result.elements[i]) element *= rescale;
    }
    add_tile_product(result, scores, block.memory,
                     block.template make_value_operand<kAlongTile>(tile.keys, column));
  });

  T* const head_log_sums = running_log_sums + (blockIdx.y * grid.head_count + block.head_index) * in.s.length;
  const auto target = make_contiguous_rows(out, in.s.length, in.s.heads, in.s.value_dim);
  const bool average = in.s.average_rounds, is_first = round == 0, is_last = round == in.s.rounds - 1;
#pragma unroll(kUnrollFactor <T>)
  for (int i = 0; i < Scores::kRowsPerThread; ++i) {
    const int64_t slot = begin + result.row(i);
    const bool exists = slot < query_slots.count;
    const int32_t position = exists ? query_slots.positions[slot] : 0;
    T* const log_sum = exists ? head_log_sums + position : nullptr;
    const RoundUpdate<T> update = average
                                      ? compute_mean_update(rows[i], in.s.rounds, is_first)
                                      : update_running_log_sum<Scores>(rows[i], log_sum, is_first, is_last);
    if (!exists) continue;
    if (column == 0 && Scores::is_row_leader() && (average || is_last))
      log_sums[block.get_log_sum_index(round, position)] = update.log_sum;
    T* const row = target.row(block.example, position, block.head);
#pragma unroll(kUnrollFactor <T>)
    for (int j = 0; j < result.kColumnsPerThread; ++j) {
      const int64_t m = column + result.column(j);
      if (m >= in.s.value_dim) continue;
      const T value = update.is_alone ? block.load_value(position, m) : result.elements[i][j];
      row[m] = is_first                      ? update.new_factor * value
               : update.is_alone && !average ? value
                                             : update.old_factor * row[m] + update.new_factor * value;
    }
  }
}

}  // namespace

template <class S>
void compute_key_factors(const LshAttentionShape& s, AttentionRows<const S> q, Compute<S>* key_factors) {
  const int64_t count = s.batch * s.heads * s.length;
  launch(key_factors_kernel<S>, make_elementwise_launch(count * kWarpSize), s, q, count, key_factors);
}

template <class T>
void clear_masked_rows(const LshAttentionShape& s, AttentionRows<T> target, int64_t width) {
  if (!s.lengths) return;
  const int64_t count = s.batch * s.heads * s.length * width;
  launch(clear_masked_kernel<T>, make_elementwise_launch(count), s, target, width, count);
}

template <class T>
LshDropoutMultipliers<T>::LshDropoutMultipliers(const LshAttentionShape& s)
    : is_active_(s.dropout.is_active()), table_(is_active_ ? count_multipliers(s) : 0) {
  if (is_active_)
    launch(multipliers_kernel<T>, make_elementwise_launch(count_multipliers(s)), s,
           DropoutMultipliers<T>(s.dropout), table_.data(), count_multipliers(s));
}

template <class S>
void LshRoundAccumulator<S>::write_rounded_result() const {
  if constexpr (!kIsSameType)
    launch(round_sums_kernel<S>, make_elementwise_launch(count_), sums_.data(), target_, count_);
}

template <class S>
void lsh_attention_forward(Backend, const LshAttentionShape& s, AttentionRows<const S> q,
                           AttentionRows<const S> v, const int32_t* buckets, S* out, Compute<S>* log_sums) {
  using T = Compute<S>;
  using Tiles = TilesFor<S>;
  const LshOrders orders(s, buckets);
  const Scratch<T> key_factors(s.batch * s.heads * s.length);
  const LshRoundAccumulator<S> result(out, s.batch * s.length * s.heads * s.value_dim);
  compute_key_factors(s, q, key_factors.data());
  clear_masked_rows(s, make_contiguous_rows(result.data(), s.length, s.heads, s.value_dim), s.value_dim);
  const int64_t rows = s.batch * s.heads * s.log_sum_round_count() * s.length;
  launch(fill_infinite_kernel<T>, make_elementwise_launch(rows), log_sums, rows);
  const LshDropoutMultipliers<T> multipliers(s);
  const LshInputs<S> in{s, orders.view(), q, v, {}, key_factors.data(), nullptr, nullptr, multipliers.data()};
  const LshGrid grid(s);
  visit_tile_width<T>(s.value_dim, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    const int64_t tiles = count_tiles(s.value_dim, kWidth);
    const Scratch<T> running_log_sum(tiles * s.batch * s.heads * s.length);
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(forward_kernel<Tiles, kWidth>, grid.make_launch<Tiles>(tiles), in, grid, round, result.data(),
             log_sums, running_log_sum.data());
  });
  result.write_rounded_result();
}

template <class S>
struct LshForwardKernels {
  inline static const FunctionInstances all{&compute_key_factors<S>, &clear_masked_rows<Compute<S>>,
                                            &LshRoundAccumulator<S>::write_rounded_result,
                                            &lsh_attention_forward<S>};
};
TAPEFORMER_FLOAT(template struct LshForwardKernels<float>; template struct LshForwardKernels<BFloat16>;
                 template class LshDropoutMultipliers<float>;)
TAPEFORMER_DOUBLE(template struct LshForwardKernels<double>; template class LshDropoutMultipliers<double>;)

}  // namespace tapeformer::cuda
