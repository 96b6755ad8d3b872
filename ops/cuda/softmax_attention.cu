#include "ops/kernels/softmax_attention.h"

#include <algorithm>
#include <limits>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/tensor_tiles.h"
#include "ops/kernels/online_softmax.h"

namespace tapeformer::cuda {
namespace {

template <class S>
struct SoftmaxInputs {
  SoftmaxAttentionShape s;
  AttentionRows<const S> q, k, v, g;
  DropoutFactors<Compute<S>> dropout;
  const Compute<S>*log_sums, *deltas;  // (batch, heads, query_length); deltas: g . out
};

// Returns the pattern of a head.
template <class Pattern>
__device__ Pattern pattern_of_head(const KeyPattern& pattern, int64_t head) {
  if constexpr (std::is_same_v<Pattern, AllKeys>)
    return {};
  else
    return pattern.of_head(head);
}

// Operands of one head. Pattern is KeyPattern, or AllKeys if the pattern of the attention is not limited.
template <class S, class Pattern>
struct SoftmaxHead {
  int64_t index, example, head, queries, keys;
  AttendedKeysOf<Pattern> attended;
  PlainRows<S> q, k, v, g;

  __device__ SoftmaxHead(const SoftmaxInputs<S>& in, int64_t number)
      : index(number),
        example(number / in.s.heads),
        head(number % in.s.heads),
        queries(in.s.query_length),
        keys(in.s.key_length),
        attended{pattern_of_head<Pattern>(in.s.pattern, number % in.s.heads), in.s.query_length,
                 in.s.key_length, valid_length(in.s.key_lengths, number / in.s.heads, in.s.key_length),
                 in.s.causal} {
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
           key + kTokens <= attended.limit(query);
  }
  // The keys of a tile that a query attends to. If has_gaps is true, [begin, end) also contains keys that the
  // query does not attend to.
  struct SeenInTile {
    int begin, end;
    bool has_gaps;
    const AttendedKeysOf<Pattern>& attended;
    int64_t query, first_key;
    __device__ bool contains(int key) const {
      return key >= begin && key < end && (!Pattern::kHasGaps || !has_gaps || is_attended(first_key + key));
    }

   private:
    // The function is not inlined, because otherwise the unrolled loops over a tile would contain a copy per
    // element.
    __device__ TAPEFORMER_NOINLINE bool is_attended(int64_t key) const {
      return attended.contains(query, key);
    }
  };
  __device__ SeenInTile seen_in_tile(int64_t query, int64_t key) const {
    if (query >= queries) return {0, 0, false, attended, query, key};
    const PositionRun run = attended.keys(query, query + 1, key);
    const int64_t end = key + kTokens;
    const bool has_gaps =
        Pattern::kHasGaps && run.end < end && attended.keys(query, query + 1, run.end).begin < end;
    return {offset_in_tile(run.begin, key),
            has_gaps ? kTokens : offset_in_tile(run.end, key),
            has_gaps,
            attended,
            query,
            key};
  }
  __device__ static int offset_in_tile(int64_t position, int64_t key) {
    const int64_t offset = position - key;
    return static_cast<int>(offset < kTokens ? offset : kTokens);
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

// The dropout mask of a tile of queries and keys. The threads of the block draw it together, eight elements
// per Philox block.
template <class T>
class DroppedTile {
 public:
  struct Kept {
    uint8_t groups[kTokens][kTokens / 8 + 1];
  };
  __device__ DroppedTile(const DropoutFactors<T>& dropout, Kept& kept) : dropout_(dropout), kept_(kept) {}

  // Draws the dropout mask of a tile. All threads of the block call this function. The function begins with a
  // barrier, because threads may still read the mask of the previous tile.
  template <class Head>
  __device__ void draw(const Head& head, int64_t query, int64_t key) {
    if (dropout_.threshold == 0) return;
    const int64_t first = dropout_.offset + (head.index * head.queries + query) * head.keys + key;
    phase_ = static_cast<unsigned>(first % 8);
    stride_ = static_cast<unsigned>(head.keys % 8);
    __syncthreads();
    constexpr int kGroups = kTokens / 8 + 1;
#pragma unroll 1
    for (int part = static_cast<int>(threadIdx.x); part < kTokens * kGroups;
         part += static_cast<int>(blockDim.x)) {
      const int row = part / kGroups, group = part % kGroups;
      kept_.groups[row][group] = dropout_.kept((first + row * head.keys) / 8 + group);
    }
    __syncthreads();
  }
  // Returns the dropout multiplier of a query and a key of the tile.
  __device__ T factor(int query, int key) const {
    if (dropout_.threshold == 0) return 1;
    const unsigned bit = (phase_ + static_cast<unsigned>(query) * stride_) % 8 + static_cast<unsigned>(key);
    return kept_.groups[query][bit / 8] >> (bit % 8) & 1 ? dropout_.scale : T{0};
  }

 private:
  const DropoutFactors<T>& dropout_;
  Kept& kept_;
  unsigned phase_ = 0, stride_ = 0;  // index of the first element, and elements per query, modulo 8
};

// Computes tile += a bᵀ for the rows of a from a_begin and the rows of b from b_begin.
template <class Tile, class Memory, class S>
__device__ void add_row_products(Tile& tile, const Memory& memory, const PlainRows<S>& a, int64_t a_begin,
                                 const PlainRows<S>& b, int64_t b_begin) {
  add_products<Lanes::along_depth, Lanes::along_depth>(tile, memory, a.width,
                                                       rows_operand<Lanes::along_depth>(a, a_begin, 0),
                                                       rows_operand<Lanes::along_depth>(b, b_begin, 0));
}

template <class Tile, class S, class Head>
__device__ void store_tile(const Tile& tile, const AttentionRows<S>& target, const Head& head, int64_t begin,
                           int64_t column, int64_t length, int64_t width) {
#pragma unroll(kUnrolled <Compute <S>>)
  for (int i = 0; i < tile.kRowsEach; ++i)
#pragma unroll(kUnrolled <Compute <S>>)
    for (int j = 0; j < tile.kColumnsEach; ++j) {
      const int64_t position = begin + tile.row(i), feature = column + tile.column(j);
      if (position < length && feature < width)
        target.row(head.example, position, head.head)[feature] = convert_element<S>(tile.elements[i][j]);
    }
}

// Computes the result of kTokens queries of a head per block. blockIdx.y selects a tile of the result. In
// causal attention, the last queries attend to the most keys, so their blocks come first.
template <class Tiles, int kWidth, class Pattern, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void forward_kernel(SoftmaxInputs<S> in, int64_t blocks, S* out, T* log_sums) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  using Scores = typename Tiles::template Tile<kTokens, kTokens>;
  __shared__ typename DroppedTile<T>::Kept kept;
  DroppedTile<T> dropped(in.dropout, kept);
  const typename Tiles::Memory memory;
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const T scale = static_cast<T>(in.s.scale);
  const int64_t begin = (blocks - 1 - blockIdx.x % blocks) * kTokens, column = int64_t{blockIdx.y} * kWidth;
  typename Tiles::template Tile<kTokens, kWidth> result;
  constexpr int kRowsEach = Scores::kRowsEach, kColumnsEach = Scores::kColumnsEach;
  T maximum[kRowsEach], sum[kRowsEach] = {};
  for (T& row : maximum) row = -kInfinity;
  for (int64_t key = head.next_key_tile(begin, 0); key < head.keys;
       key = head.next_key_tile(begin, key + kTokens)) {
    dropped.draw(head, begin, key);
    Scores scores;
    add_row_products(scores, memory, head.q, begin, head.k, key);
    const bool masked = !head.attends_to_all(begin, key);
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < kRowsEach; ++i) {
      for (T& score : scores.elements[i]) score *= scale;
      if (masked) {
        const auto seen = head.seen_in_tile(begin + scores.row(i), key);
#pragma unroll(kUnrolled <T>)
        for (int j = 0; j < kColumnsEach; ++j)
          if (!seen.contains(scores.column(j))) scores.elements[i][j] = -kInfinity;
      }
      T largest = -kInfinity;
      for (const T score : scores.elements[i]) largest = Maximum::apply(largest, score);
      const auto update = update_online_softmax(maximum[i], Scores::template row_reduce<Maximum>(largest));
      T total = 0;
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < kColumnsEach; ++j) {
        T& score = scores.elements[i][j];
        score = std::exp(score - update.shift);
        total += score;
        score *= dropped.factor(scores.row(i), scores.column(j));
      }
      maximum[i] = update.maximum;
      sum[i] = update.rescale * sum[i] + Scores::template row_reduce<Plus>(total);
      for (T& element : result.elements[i]) element *= update.rescale;
    }
    add_products_of(result, scores, memory, rows_operand<Lanes::along_tile>(head.v, key, column));
  }
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < kRowsEach; ++i) {
    const int64_t query = begin + result.row(i);
    for (T& element : result.elements[i]) element = sum[i] == 0 ? T{0} : element / sum[i];
    if (column == 0 && query < head.queries && Scores::first_of_row())
      log_sums[head.index * head.queries + query] = sum[i] == 0 ? -kInfinity : maximum[i] + std::log(sum[i]);
  }
  store_tile(result, contiguous_rows(out, head.queries, in.s.heads, in.s.value_dim), head, begin, column,
             head.queries, in.s.value_dim);
}

// Computes the gradient of one score. Replaces `probability`, which holds q . k, by the probability of the
// key times the dropout multiplier. Replaces `gradient`, which holds g . v, by the gradient of q . k.
template <class T>
__device__ void score_gradient(T scale, T factor, T log_sum, T delta, T& probability, T& gradient) {
  const T p = std::exp(scale * probability - log_sum);
  probability = p * factor;
  gradient = p * (gradient * factor - delta) * scale;
}

// Computes the gradient of kTokens queries of a head per block. blockIdx.y selects a tile of the gradient.
template <class Tiles, int kWidth, class Pattern, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void query_gradient_kernel(SoftmaxInputs<S> in, int64_t blocks, AttentionRows<S> gq) {
  using Scores = typename Tiles::template Tile<kTokens, kTokens>;
  __shared__ typename DroppedTile<T>::Kept kept;
  DroppedTile<T> dropped(in.dropout, kept);
  const typename Tiles::Memory memory;
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const T scale = static_cast<T>(in.s.scale);
  const int64_t begin = (blocks - 1 - blockIdx.x % blocks) * kTokens, column = int64_t{blockIdx.y} * kWidth;
  typename Tiles::template Tile<kTokens, kWidth> result;
  T log_sums[Scores::kRowsEach] = {}, deltas[Scores::kRowsEach] = {};
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Scores::kRowsEach; ++i) {
    const int64_t query = begin + Scores::row(i), at = head.index * head.queries + query;
    if (query >= head.queries) continue;
    log_sums[i] = in.log_sums[at];
    deltas[i] = in.deltas[at];
  }
  for (int64_t key = head.next_key_tile(begin, 0); key < head.keys;
       key = head.next_key_tile(begin, key + kTokens)) {
    dropped.draw(head, begin, key);
    Scores scores, gradients;
    add_row_products(scores, memory, head.q, begin, head.k, key);
    add_row_products(gradients, memory, head.g, begin, head.v, key);
    const bool masked = !head.attends_to_all(begin, key);
#pragma unroll(kUnrolled <T>)
    for (int i = 0; i < scores.kRowsEach; ++i) {
      const int row = scores.row(i);
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < scores.kColumnsEach; ++j)
        score_gradient(scale, dropped.factor(row, scores.column(j)), log_sums[i], deltas[i],
                       scores.elements[i][j], gradients.elements[i][j]);
      if (!masked) continue;
      const auto seen = head.seen_in_tile(begin + row, key);
#pragma unroll(kUnrolled <T>)
      for (int j = 0; j < scores.kColumnsEach; ++j)
        if (!seen.contains(scores.column(j))) gradients.elements[i][j] = 0;
    }
    add_products_of(result, gradients, memory, rows_operand<Lanes::along_tile>(head.k, key, column));
  }
  store_tile(result, gq, head, begin, column, head.queries, in.s.dim);
}

// Computes the gradients of kTokens keys and values of a head per block. blockIdx.y selects a tile of the
// gradients.
template <class Tiles, int kWidth, class Pattern, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void key_gradient_kernel(SoftmaxInputs<S> in, int64_t blocks, AttentionRows<S> gk,
                                    AttentionRows<S> gv) {
  using Scores = typename Tiles::template Tile<kTokens, kTokens>;
  __shared__ typename DroppedTile<T>::Kept kept;
  DroppedTile<T> dropped(in.dropout, kept);
  const typename Tiles::Memory memory;
  const SoftmaxHead<S, Pattern> head(in, blockIdx.x / blocks);
  const T scale = static_cast<T>(in.s.scale);
  const int64_t begin = blockIdx.x % blocks * kTokens, column = int64_t{blockIdx.y} * kWidth;
  typename Tiles::template Tile<kTokens, kWidth> to_key, to_value;
  const bool wants_key = gk.data && column < in.s.dim, wants_value = gv.data && column < in.s.value_dim;
  for (int64_t query = head.next_query_tile(begin, 0); query < head.queries;
       query = head.next_query_tile(begin, query + kTokens)) {
    dropped.draw(head, query, begin);
    Scores scores, gradients;
    add_row_products(scores, memory, head.k, begin, head.q, query);
    add_row_products(gradients, memory, head.v, begin, head.g, query);
    const bool masked = !head.attends_to_all(query, begin);
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < scores.kColumnsEach; ++j) {
      const int query_in_tile = scores.column(j);
      const int64_t i = query + query_in_tile, at = head.index * head.queries + i;
      const T log_sum = i < head.queries ? in.log_sums[at] : T{0};
      const T delta = i < head.queries ? in.deltas[at] : T{0};
#pragma unroll(kUnrolled <T>)
      for (int r = 0; r < scores.kRowsEach; ++r)
        score_gradient(scale, dropped.factor(query_in_tile, scores.row(r)), log_sum, delta,
                       scores.elements[r][j], gradients.elements[r][j]);
      if (!masked) continue;
      const auto seen = head.seen_in_tile(i, begin);
#pragma unroll(kUnrolled <T>)
      for (int r = 0; r < scores.kRowsEach; ++r)
        if (!seen.contains(scores.row(r))) scores.elements[r][j] = gradients.elements[r][j] = 0;
    }
    if (wants_value)
      add_products_of(to_value, scores, memory, rows_operand<Lanes::along_tile>(head.g, query, column));
    if (wants_key)
      add_products_of(to_key, gradients, memory, rows_operand<Lanes::along_tile>(head.q, query, column));
  }
  if (wants_key) store_tile(to_key, gk, head, begin, column, head.keys, in.s.dim);
  if (wants_value) store_tile(to_value, gv, head, begin, column, head.keys, in.s.value_dim);
}

// Returns the shape of a launch with its number of operations. `multiply_adds` is the number of multiply-adds
// per query and key. Counts all keys, or half of them in causal attention. Patterns do not reduce the count.
template <class Tiles, class S>
Launch blocks_of(const SoftmaxAttentionShape& s, int64_t blocks, int64_t tiles, int64_t multiply_adds) {
  const double pairs =
      static_cast<double>(s.batch * s.heads * s.query_length * s.key_length) * (s.causal ? 0.5 : 1.0);
  return over_tiles(s.batch * s.heads * blocks, tiles, Tiles::kThreads, Tiles::Memory::kBytes)
      .template multiplying<S>(2 * pairs * static_cast<double>(multiply_adds));
}

// Calls f(columns, pattern) with the number of columns of result tiles, as a compile-time constant, and an
// AllKeys or KeyPattern, whose type selects the kernel. Double uses one pattern type to save compile time.
template <class T, class F>
void with_width_and_pattern(int64_t width, const KeyPattern& pattern, F&& f) {
  with_tile_width<T>(width, [&](auto columns) {
    if constexpr (sizeof(T) == sizeof(float))
      if (!pattern.is_limited()) return f(columns, AllKeys{});
    f(columns, KeyPattern{});
  });
}

}  // namespace

template <class S>
void softmax_attention_forward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v, S* out,
                               Compute<S>* log_sums) {
  using T = Compute<S>;
  using Tiles = TilesFor<S>;
  const SoftmaxInputs<S> in{s, q, k, v, {}, DropoutFactors<T>(s.dropout), nullptr, nullptr};
  const int64_t blocks = tiles_of(s.query_length, kTokens);
  with_width_and_pattern<T>(s.value_dim, s.pattern, [&](auto width, auto pattern) {
    constexpr int kWidth = decltype(width)::value;
    launch(forward_kernel<Tiles, kWidth, decltype(pattern)>,
           blocks_of<Tiles, S>(s, blocks, tiles_of(s.value_dim, kWidth), s.dim + s.value_dim), in, blocks,
           out, log_sums);
  });
}

template <class S>
void softmax_attention_backward(Backend, const SoftmaxAttentionShape& s, AttentionRows<const S> q,
                                AttentionRows<const S> k, AttentionRows<const S> v, const S* out,
                                const Compute<S>* log_sums, AttentionRows<const S> g,
                                AttentionGradients<S> gradients) {
  using T = Compute<S>;
  using Tiles = TilesFor<S>;
  const Scratch<T> deltas(s.batch * s.heads * s.query_length);
  row_dots<S>(g, contiguous_rows(out, s.query_length, s.heads, s.value_dim), nullptr, T{1}, s.batch,
              s.query_length, s.heads, s.value_dim, deltas.data());
  const SoftmaxInputs<S> in{s, q, k, v, g, DropoutFactors<T>(s.dropout), log_sums, deltas.data()};
  if (gradients.gq.data)
    with_width_and_pattern<T>(s.dim, s.pattern, [&](auto width, auto pattern) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t blocks = tiles_of(s.query_length, kTokens);
      launch(query_gradient_kernel<Tiles, kWidth, decltype(pattern)>,
             blocks_of<Tiles, S>(s, blocks, tiles_of(s.dim, kWidth), 2 * s.dim + s.value_dim), in, blocks,
             gradients.gq);
    });
  const int64_t widest = std::max(s.dim, s.value_dim);
  if (gradients.gk.data || gradients.gv.data)
    with_width_and_pattern<T>(widest, s.pattern, [&](auto width, auto pattern) {
      constexpr int kWidth = decltype(width)::value;
      const int64_t blocks = tiles_of(s.key_length, kTokens);
      launch(key_gradient_kernel<Tiles, kWidth, decltype(pattern)>,
             blocks_of<Tiles, S>(s, blocks, tiles_of(widest, kWidth), 2 * (s.dim + s.value_dim)), in, blocks,
             gradients.gk, gradients.gv);
    });
}

template <class T>
struct SoftmaxAttentionKernels {
  inline static const Instances all{&softmax_attention_forward<T>, &softmax_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct SoftmaxAttentionKernels<float>;
                 template struct SoftmaxAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct SoftmaxAttentionKernels<double>;)

}  // namespace tapeformer::cuda
