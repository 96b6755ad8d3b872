#include "ops/cuda/lsh_attention.h"

#include <type_traits>

#include "core/instances.h"
#include "ops/kernels/online_softmax.h"

namespace tapeformer::cuda {
namespace {

template <class T>
constexpr T kInfinity = std::numeric_limits<T>::infinity();

// Computes the factors of the keys, with one warp per row.
template <class S, class T = Compute<S>>
__global__ void factors_kernel(LshAttentionShape s, AttentionRows<const S> q, int64_t count, T* factors) {
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
    if (lane == 0) factors[i] = static_cast<T>(s.scale) / std::sqrt(square + static_cast<T>(s.epsilon));
  }
}

template <class T>
__global__ void clear_kernel(LshAttentionShape s, AttentionRows<T> target, int64_t width, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    const int64_t row = i / width, head = row % s.heads, position = row / s.heads % s.length;
    const int64_t example = row / s.heads / s.length;
    if (position >= lsh_valid_length(s, example)) target.row(example, position, head)[i % width] = 0;
  }
}

template <class S>
__global__ void round_result_kernel(const Compute<S>* sums, S* target, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) target[i] = convert_element<S>(sums[i]);
}

template <class T>
__global__ void multipliers_kernel(DropoutFactors<T> dropout, T* table, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) table[i] = dropout.multiplier(i);
}

template <class T>
__global__ void fill_infinite_kernel(T* target, int64_t count) {
  for (int64_t i = first_element(); i < count; i += element_stride()) target[i] = kInfinity<T>;
}

// The state of the online softmax of one query over the keys of one round.
template <class T>
struct RowSoftmax {
  T maximum = -kInfinity<T>, sum = 0;
};

// Replaces row i of a tile of products by weights exp(score - maximum), divided by the multiplicities of the
// keys, after dropout. Returns the factor by which earlier sums of the row must be multiplied.
template <class Tiles, class Scores, class T = typename Tiles::Value>
__device__ T weigh_row(const LshBlock<Tiles>& block, Scores& scores, int i, RowSoftmax<T>& softmax) {
  const LshTile<T>& tile = block.tile;
  const int row = Scores::row(i);
  T largest = -kInfinity<T>;
#pragma unroll(kUnrolled <T>)
  for (int j = 0; j < Scores::kColumnsEach; ++j) {
    const int at = Scores::column(j);
    T& score = scores.elements[i][j];
    score = block.sees(row, at) ? tile.factors[at] * score : -kInfinity<T>;
    largest = Maximum::apply(largest, score);
  }
  const auto update = update_online_softmax(softmax.maximum, Scores::template row_reduce<Maximum>(largest));
  T total = 0;
#pragma unroll(kUnrolled <T>)
  for (int j = 0; j < Scores::kColumnsEach; ++j) {
    T& score = scores.elements[i][j];
    const bool seen = score != -kInfinity<T>;
    score = std::exp(score - update.shift);
    if (seen) score /= block.multiplicity(row, Scores::column(j));
    total += score;
    score *= block.dropped(row, Scores::column(j));
  }
  softmax.maximum = update.maximum;
  softmax.sum = update.rescale * softmax.sum + Scores::template row_reduce<Plus>(total);
  return update.rescale;
}

// Coefficients for adding a round to the result of a query: result = keep * result + add * round. If a query
// attends to no other key (`alone`), the value at the position of the query replaces the result of the round.
template <class T>
struct RoundUpdate {
  T keep, add, log_sum;
  bool alone;
};

// Returns the update for the mean of the softmaxes of the rounds.
template <class T>
__device__ RoundUpdate<T> mean_update(const RowSoftmax<T>& row, int64_t rounds, bool first) {
  const bool alone = row.sum == 0;
  const T share = 1 / static_cast<T>(rounds);
  return {first ? T{0} : T{1}, alone ? share : share / row.sum,
          alone ? kInfinity<T> : row.maximum + std::log(row.sum), alone};
}

// Returns the update for one softmax over all rounds. `past` is the log-sum-exp of the earlier rounds.
template <class T>
__device__ RoundUpdate<T> softmax_update(const RowSoftmax<T>& row, T past, bool last) {
  const T largest = Maximum::apply(past, row.maximum), shift = largest == -kInfinity<T> ? T{0} : largest;
  const T total = std::exp(past - shift) + std::exp(row.maximum - shift) * row.sum;
  const T log_sum = total == 0 ? -kInfinity<T> : shift + std::log(total);  // propagates NaN
  const bool alone = last && total == 0;
  return {alone || total == 0 ? T{0} : std::exp(past - log_sum),
          alone        ? T{1}
          : total == 0 ? T{0}
                       : std::exp(row.maximum - log_sum),
          log_sum, alone};
}

// Returns the update of a row and replaces its running log-sum-exp. All threads of the row call the function;
// running is null for a row without a query.
template <class Scores, class T>
__device__ RoundUpdate<T> update_running(const RowSoftmax<T>& row, T* running, bool first, bool last) {
  RoundUpdate<T> update = softmax_update(row, first || !running ? -kInfinity<T> : *running, last);
  __syncwarp();  // all threads of the row have read *running
  if (running && Scores::first_of_row()) *running = update.log_sum;
  if (update.alone) update.log_sum = kInfinity<T>;
  return update;
}

// Adds one round to the result: softmax attention over the chunk of the query and the previous chunk.
// `all_running` holds the log-sum-exp of the earlier rounds, separately for each tile of the result.
template <class Tiles, int kWidth, class T = typename Tiles::Value, class S = typename Tiles::Stored>
__global__ void forward_kernel(LshInputs<S> in, LshGrid grid, int64_t round, T* out, T* log_sums,
                               T* all_running) {
  __shared__ LshTile<T> tile;
  LshBlock<Tiles> block(in, tile, grid.head());
  using Scores = typename LshBlock<Tiles>::Scores;
  const int64_t chunk = grid.chunk(), begin = grid.first_slot(), column = int64_t{blockIdx.y} * kWidth;
  if (chunk >= block.order.chunks || begin >= block.order.slots(chunk)) return;
  const LshSlots own = block.slots(round, chunk), before = block.slots_before(round, chunk);
  T* const running = all_running + (blockIdx.y * grid.heads + block.index) * in.s.length;

  typename Tiles::template Tile<kTokens, kWidth> result;
  RowSoftmax<T> rows[Scores::kRowsEach];
  for (const bool back : {true, false}) {
    const LshSlots& keys = back ? before : own;
    for (int64_t key = 0; key < keys.count; key += kTokens) {
      __syncthreads();  // all threads have read the positions of the previous tile
      block.load_queries(own, begin, back);
      block.load_keys(keys, key);
      __syncthreads();
      block.count_multiplicities();
      Scores scores;
      add_products<Lanes::along_depth, Lanes::along_depth>(
          scores, block.memory, in.s.dim, block.template queries<Lanes::along_depth>(tile.queries),
          block.template queries<Lanes::along_depth>(tile.keys));
#pragma unroll(kUnrolled <T>)
      for (int i = 0; i < Scores::kRowsEach; ++i) {
        const T rescale = weigh_row(block, scores, i, rows[i]);
        for (T& element : result.elements[i]) element *= rescale;
      }
      add_products_of(result, scores, block.memory,
                      block.template values<Lanes::along_tile>(tile.keys, column));
    }
  }

  const AttentionRows<T> target = make_contiguous_rows(out, in.s.length, in.s.heads, in.s.value_dim);
  const bool average = in.s.average_rounds, first = round == 0, last = round == in.s.rounds - 1;
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Scores::kRowsEach; ++i) {
    const int64_t slot = begin + result.row(i);
    const bool exists = slot < own.count;
    const int32_t position = exists ? own.positions[slot] : 0;
    const RoundUpdate<T> update =
        average ? mean_update(rows[i], in.s.rounds, first)
                : update_running<Scores>(rows[i], exists ? running + position : nullptr, first, last);
    if (!exists) continue;
    if (column == 0 && Scores::first_of_row() && (average || last))
      log_sums[block.log_sum_index(round, position)] = update.log_sum;
    T* const row = target.row(block.example, position, block.head);
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < result.kColumnsEach; ++j) {
      const int64_t m = column + result.column(j);
      if (m >= in.s.value_dim) continue;
      const T value = update.alone ? block.v_at(position, m) : result.elements[i][j];
      row[m] = first                      ? update.add * value
               : update.alone && !average ? value
                                          : update.keep * row[m] + update.add * value;
    }
  }
}

}  // namespace

template <class S>
void lsh_factors(const LshAttentionShape& s, AttentionRows<const S> q, Compute<S>* factors) {
  const int64_t count = s.batch * s.heads * s.length;
  launch(factors_kernel<S>, over_elements(count * kWarpSize), s, q, count, factors);
}

template <class T>
void lsh_clear_masked(const LshAttentionShape& s, AttentionRows<T> target, int64_t width) {
  if (!s.lengths) return;
  const int64_t count = s.batch * s.heads * s.length * width;
  launch(clear_kernel<T>, over_elements(count), s, target, width, count);
}

template <class T>
LshMultipliers<T>::LshMultipliers(const LshAttentionShape& s)
    : active_(s.dropout.is_active()), table_(active_ ? 2 * s.chunk_length * s.chunk_length : 0) {
  const int64_t count = 2 * s.chunk_length * s.chunk_length;
  if (active_)
    launch(multipliers_kernel<T>, over_elements(count), DropoutFactors<T>(s.dropout), table_.data(), count);
}

template <class S>
void LshResult<S>::finish() const {
  if constexpr (!kSame) launch(round_result_kernel<S>, over_elements(count_), sums_.data(), target_, count_);
}

template <class S>
void lsh_attention_forward(Backend, const LshAttentionShape& s, AttentionRows<const S> q,
                           AttentionRows<const S> v, const int32_t* buckets, S* out, Compute<S>* log_sums) {
  using T = Compute<S>;
  using Tiles = TilesFor<S>;
  const LshOrders orders(s, buckets);
  const Scratch<T> factors(s.batch * s.heads * s.length);
  const LshResult<S> result(out, s.batch * s.length * s.heads * s.value_dim);
  lsh_factors(s, q, factors.data());
  lsh_clear_masked(s, make_contiguous_rows(result.data(), s.length, s.heads, s.value_dim), s.value_dim);
  const int64_t rows = s.batch * s.heads * s.log_sum_round_count() * s.length;
  launch(fill_infinite_kernel<T>, over_elements(rows), log_sums, rows);
  const LshMultipliers<T> multipliers(s);
  const LshInputs<S> in{s, orders.view(), q, v, {}, factors.data(), nullptr, nullptr, multipliers.data()};
  const LshGrid grid(s);
  with_tile_width<T>(s.value_dim, [&](auto width) {
    constexpr int kWidth = decltype(width)::value;
    const int64_t tiles = tiles_of(s.value_dim, kWidth);
    const Scratch<T> running(tiles * s.batch * s.heads * s.length);
    for (int64_t round = 0; round < s.rounds; ++round)
      launch(forward_kernel<Tiles, kWidth>, grid.launch<Tiles>(tiles), in, grid, round, result.data(),
             log_sums, running.data());
  });
  result.finish();
}

template <class S>
struct LshForwardKernels {
  inline static const Instances all{&lsh_factors<S>, &lsh_clear_masked<Compute<S>>, &LshResult<S>::finish,
                                    &lsh_attention_forward<S>};
};
TAPEFORMER_FLOAT(template struct LshForwardKernels<float>; template struct LshForwardKernels<BFloat16>;
                 template class LshMultipliers<float>;)
TAPEFORMER_DOUBLE(template struct LshForwardKernels<double>; template class LshMultipliers<double>;)

}  // namespace tapeformer::cuda
