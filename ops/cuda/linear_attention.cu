#include "ops/kernels/linear_attention.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "core/instances.h"
#include "ops/cuda/linear_attention_rows.h"
#include "ops/cuda/tensor_tiles.h"

// Linear attention in chunks of kTokens, in three steps. First, each segment of tokens is summed into a
// state, in parallel. Then a scan replaces the states by their prefix or suffix sums. Finally, each chunk is
// processed in parallel: it reads its state, and uses a kTokens x kTokens product for its own tokens.
//
// Legend: q, k are phi(q), phi(k), (length, dim);
//   dn = g / d, the gradient of the numerator of out, (length, value_dim);
//   dd = -(g . out) / d, the gradient of the denominator of out, (length,).
// A state is a (dim, value_dim) matrix followed by a (dim,) vector:
//   forward  sum k v^T and sum k
//   reverse  sum q dn^T and sum dd q
// The enum Reading lists the four ways to read the states.
namespace tapeformer::cuda {
namespace {

enum class Reading { result, query_gradient, key_gradient, value_gradient };

template <class S>
struct LinearInputs {
  LinearAttentionShape s;
  AttentionRows<const S> q, k, v, g;
  const Compute<S>*inverse, *dd;  // 1 / d and dd, (batch, heads, query_length)
};

// The operands of one head. dn and dd are defined in the legend at the top of this file.
template <class S>
struct LinearHead {
  int64_t example, head;
  HeadRows<S> queries, keys, values, dn;
  const Compute<S>* dd;

  __device__ LinearHead(const LinearInputs<S>& in, int64_t index)
      : example(index / in.s.heads), head(index % in.s.heads) {
    const int64_t valid = valid_length(in.s.key_lengths, example, in.s.key_length),
                  offset = index * in.s.query_length;
    queries = {in.q.row(example, 0, head), in.q.length_stride, nullptr, in.s.query_length, in.s.dim};
    keys = {in.k.row(example, 0, head), in.k.length_stride, nullptr, valid, in.s.dim};
    values = {in.v.row(example, 0, head), in.v.length_stride, nullptr, valid, in.s.value_dim};
    queries.map = keys.map = in.s.feature_map;
    queries.mapped = keys.mapped = true;
    if (in.g.data)
      dn = {in.g.row(example, 0, head), in.g.length_stride, in.inverse + offset, in.s.query_length,
            in.s.value_dim};
    dd = in.dd ? in.dd + offset : nullptr;
    for (HeadRows<S>* rows : {&queries, &keys, &values, &dn}) rows->is_packed = rows->has_packs();
  }
};

// Computes the state of one segment of `tokens` positions of a head per block. blockIdx.y selects a tile of
// the state.
template <class Tiles, bool kReverse, int kWidth, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void state_kernel(LinearInputs<S> in, int64_t segments, int64_t tokens, T* states) {
  const typename Tiles::Memory memory;
  const LinearHead<S> head(in, blockIdx.x / segments);
  HeadRows<S> features = kReverse ? head.queries : head.keys, values = kReverse ? head.dn : head.values;
  const int64_t dim = in.s.dim, value_dim = in.s.value_dim;
  const int64_t begin = blockIdx.x % segments * tokens;
  const int64_t end = begin + tokens < features.count ? begin + tokens : features.count;
  features.count = values.count = end;
  const int64_t value_tiles = (value_dim + kWidth - 1) / kWidth;
  const int64_t row = blockIdx.y / value_tiles * kWidth, column = blockIdx.y % value_tiles * kWidth;

  typename Tiles::template Tile<kWidth, kWidth> state;
  T sum = 0;  // sum of one feature, in the first kWidth threads
  const int thread = static_cast<int>(threadIdx.x);
  add_products<Lanes::along_tile, Lanes::along_tile>(
      state, memory, end - begin, RowsOperand<Lanes::along_tile, S>{features, begin, row},
      RowsOperand<Lanes::along_tile, S>{values, begin, column},
      [&](int64_t first, int count, auto&& element) {
        if (column > 0 || thread >= kWidth) return;
        for (int t = 0; t < count; ++t) {
          const T feature = element(t, thread);
          sum += kReverse ? feature * head.dd[begin + first + t] : feature;
        }
      });
  T* const target = states + int64_t{blockIdx.x} * dim * (value_dim + 1);
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < state.kRowsEach; ++i)
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < state.kColumnsEach; ++j) {
      const int64_t feature = row + state.row(i), value = column + state.column(j);
      if (feature < dim && value < value_dim) target[feature * value_dim + value] = state.elements[i][j];
    }
  if (column == 0 && thread < kWidth && row + thread < dim) target[dim * value_dim + row + thread] = sum;
}

enum class Scan { prefix, suffix, all };

// Replaces each state (heads, segments, size) by the sum of the segments before it (Scan::prefix) or after it
// (Scan::suffix). Scan::all replaces only the first state, by the sum of all segments.
template <class T>
__global__ void scan_kernel(T* states, int64_t segments, int64_t size, int64_t count, Scan scan) {
  for (int64_t i = first_element(); i < count; i += element_stride()) {
    T* const first = states + i / size * segments * size + i % size;
    T sum = 0;
    if (scan == Scan::all) {
      for (int64_t c = 0; c < segments; ++c) sum += first[c * size];
      *first = sum;
      continue;
    }
    const int64_t step = scan == Scan::prefix ? size : -size;
    T* at = scan == Scan::prefix ? first : first + (segments - 1) * size;
    T next = *at;
    for (int64_t c = 0; c < segments; ++c, at += step) {
      const T own = next;
      if (c + 1 < segments) next = at[step];
      *at = sum;
      sum += own;
    }
  }
}

// The operands of read_kernel. Row i of the result is Σ_j (rows_i . columns_j) values_j. For gradients with
// respect to q and k, dd is added to the dot products.
template <Reading kReading, class S>
struct ReadOperands {
  const HeadRows<S>&rows, &columns, &values;

  __device__ explicit ReadOperands(const LinearHead<S>& head)
      : rows(kReading == Reading::result           ? head.queries
             : kReading == Reading::query_gradient ? head.dn
             : kReading == Reading::key_gradient   ? head.values
                                                   : head.keys),
        columns(kReading == Reading::result           ? head.keys
                : kReading == Reading::query_gradient ? head.values
                : kReading == Reading::key_gradient   ? head.dn
                                                      : head.queries),
        values(kReading == Reading::result           ? head.values
               : kReading == Reading::query_gradient ? head.keys
               : kReading == Reading::key_gradient   ? head.queries
                                                     : head.dn) {}
};

// Adds dd to the products of the rows and columns of a chunk, and masks the products that the causal form
// excludes. For Reading::result, adds up the denominators of the rows.
template <Reading kReading, class Products, class S, class T = Compute<S>>
__device__ void finish_products(Products& products, const LinearHead<S>& head, int64_t begin, int64_t queries,
                                T (&denominators)[Products::kRowsEach]) {
  constexpr bool kReverse = kReading == Reading::key_gradient || kReading == Reading::value_gradient;
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Products::kRowsEach; ++i) {
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < Products::kColumnsEach; ++j) {
      const int row = Products::row(i), other = Products::column(j);
      T& product = products.elements[i][j];
      if constexpr (kReading == Reading::query_gradient)
        product += begin + row < queries ? head.dd[begin + row] : T{0};
      if constexpr (kReading == Reading::key_gradient)
        product += begin + other < queries ? head.dd[begin + other] : T{0};
      if (kReverse ? other < row : other > row) product = 0;
      if constexpr (kReading == Reading::result) denominators[i] += product;
    }
    if constexpr (kReading == Reading::result)
      denominators[i] = Products::template row_reduce<Plus>(denominators[i]);
  }
}

// Returns one element of the result from `sum`, its sum of products. For a gradient with respect to q or k,
// adds the term of the denominator and multiplies by the derivative of the feature map.
template <Reading kReading, class S, class T = Compute<S>>
__device__ T feature_gradient(T sum, const LinearHead<S>& head, const T* state_sum, int64_t position,
                              int64_t feature) {
  if constexpr (kReading == Reading::query_gradient)
    return (sum + head.dd[position] * state_sum[feature]) * head.queries.derivative(position, feature);
  else if constexpr (kReading == Reading::key_gradient)
    return position < head.keys.count ? (sum + state_sum[feature]) * head.keys.derivative(position, feature)
                                      : T{0};
  else
    return sum;
}

// Writes the rows of a chunk, and for Reading::result the inverse denominators.
template <Reading kReading, class Sums, class S, class R, class T = Compute<S>>
__device__ void store_result(const Sums& sums, const T* denominators, const T* state_denominators,
                             const LinearInputs<S>& in, const LinearHead<S>& head, int64_t index,
                             int64_t begin, int64_t column, const T* state_sum, R* result, T* inverse) {
  constexpr bool kReverse = kReading == Reading::key_gradient || kReading == Reading::value_gradient;
  constexpr bool kToFeatures = kReading == Reading::query_gradient || kReading == Reading::key_gradient;
  const int64_t length = kReverse ? in.s.key_length : in.s.query_length;
  const int64_t width = kToFeatures ? in.s.dim : in.s.value_dim;
  const AttentionRows<R> target = contiguous_rows(result, length, in.s.heads, width);
#pragma unroll(kUnrolled <T>)
  for (int i = 0; i < Sums::kRowsEach; ++i) {
    const int64_t position = begin + Sums::row(i);
    if (position >= length) continue;
    T factor = 1;
    if constexpr (kReading == Reading::result) {
      factor = 1 / (state_denominators[Sums::row(i)] + denominators[i]);
      if (column == 0 && Sums::first_of_row() && inverse)
        inverse[index * in.s.query_length + position] = factor;
    }
#pragma unroll(kUnrolled <T>)
    for (int j = 0; j < Sums::kColumnsEach; ++j) {
      const int64_t feature = column + Sums::column(j);
      if (feature >= width) continue;
      const T sum =
          feature_gradient<kReading>(sums.elements[i][j] * factor, head, state_sum, position, feature);
      target.row(head.example, position, head.head)[feature] = convert_element<R>(sum);
    }
  }
}

// Computes the result of one chunk of a head per block. blockIdx.y selects a tile of the result. Each head
// has states_each states: one per chunk in the causal form, otherwise one.
template <class Tiles, Reading kReading, int kWidth, class R, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
__global__ void read_kernel(LinearInputs<S> in, int64_t chunks, const T* states, int64_t states_each,
                            R* result, T* inverse) {
  constexpr bool kToFeatures = kReading == Reading::query_gradient || kReading == Reading::key_gradient;
  using Sums = typename Tiles::template Tile<kTokens, kWidth>;
  using Products = typename Tiles::template Tile<kTokens, kTokens>;
  __shared__ T state_denominators[kTokens];  // the terms of the denominators that come from the state
  const typename Tiles::Memory memory;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t index = blockIdx.x / chunks, begin = blockIdx.x % chunks * kTokens;
  const int64_t column = int64_t{blockIdx.y} * kWidth;
  const LinearHead<S> head(in, index);
  const ReadOperands<kReading, S> operands(head);
  const HeadRows<S>& rows = operands.rows;
  const int64_t queries = in.s.query_length, dim = in.s.dim, value_dim = in.s.value_dim;
  const T* const state =
      states + (index * states_each + (in.s.causal ? blockIdx.x % chunks : 0)) * dim * (value_dim + 1);
  const T* const state_sum = state + dim * value_dim;

  Sums sums;
  T denominators[Sums::kRowsEach] = {};  // the chunk's terms of the denominators of the thread's rows
  if (in.s.causal) {
    Products products;
    add_products<Lanes::along_depth, Lanes::along_depth>(
        products, memory, rows.width, RowsOperand<Lanes::along_depth, S>{rows, begin, 0},
        RowsOperand<Lanes::along_depth, S>{operands.columns, begin, 0});
    finish_products<kReading>(products, head, begin, queries, denominators);
    add_products_of(sums, products, memory,
                    RowsOperand<Lanes::along_tile, S>{operands.values, begin, column});
  }
  T denominator = static_cast<T>(in.s.eps);  // denominator of row `thread`, from the state
  add_products<Lanes::along_depth, kToFeatures ? Lanes::along_depth : Lanes::along_tile>(
      sums, memory, rows.width, RowsOperand<Lanes::along_depth, S>{rows, begin, 0},
      [&](int64_t d, int j) {
        if constexpr (kToFeatures)
          return d < value_dim && column + j < dim ? state[(column + j) * value_dim + d] : T{0};
        else
          return d < dim && column + j < value_dim ? state[d * value_dim + column + j] : T{0};
      },
      [&](int64_t first, int count, auto&& element) {
        if (kReading == Reading::result && thread < kTokens)
          for (int d = 0; d < count; ++d) denominator += element(d, thread) * state_sum[first + d];
      });
  if constexpr (kReading == Reading::result) {
    if (thread < kTokens) state_denominators[thread] = denominator;
    __syncthreads();
  }
  store_result<kReading>(sums, denominators, state_denominators, in, head, index, begin, column, state_sum,
                         result, inverse);
}

// Returns the shape of a launch with its work. `features` and `values` are the numbers of accessed tensors of
// width dim and value_dim, and `others` is the number of other bytes. `multiply_adds` is the number of
// multiply-adds per token and head.
template <class Tiles, class S>
Launch with_work(const Launch& shape, const LinearAttentionShape& s, int64_t length, int64_t features,
                 int64_t values, int64_t others, int64_t multiply_adds) {
  constexpr int kProducts = std::is_same_v<Tiles, SplitTensorTiles> ? 3 : 1;  // products of operand parts
  const int64_t tokens = s.batch * s.heads * length;
  const int64_t elements = tokens * (features * s.dim + values * s.value_dim);
  return shape.moving(elements * static_cast<int64_t>(sizeof(S)) + others)
      .template multiplying<S>(2.0 * kProducts * static_cast<double>(tokens * multiply_adds));
}

// The scanned states of one direction.
template <class Tiles>
class LinearStates {
  using T = typename Tiles::Value;
  using S = typename Tiles::Stored;

 public:
  LinearStates(const LinearInputs<S>& in, bool reverse)
      : chunks_(tiles_of(reverse ? in.s.query_length : in.s.key_length, kTokens)),
        segments_(in.s.causal ? chunks_ : segment_count(in.s, chunks_)),
        count_(in.s.batch * in.s.heads * segments_ * in.s.dim * (in.s.value_dim + 1)),
        states_(count_) {
    const int64_t heads = in.s.batch * in.s.heads, size = in.s.dim * (in.s.value_dim + 1);
    if (heads == 0 || segments_ == 0) return;
    auto run = [&](auto width) {
      constexpr int kWidth = decltype(width)::value;
      auto* const kernel = reverse ? state_kernel<Tiles, true, kWidth> : state_kernel<Tiles, false, kWidth>;
      const int64_t tiles = tiles_of(in.s.dim, kWidth) * tiles_of(in.s.value_dim, kWidth);
      const int64_t tokens = (chunks_ + segments_ - 1) / segments_ * kTokens;
      const Launch shape = over_tiles(heads * segments_, tiles, Tiles::kThreads, Tiles::Memory::kSliceBytes);
      const int64_t length = reverse ? in.s.query_length : in.s.key_length;
      const int64_t sums = reverse ? 2 * heads * length * static_cast<int64_t>(sizeof(T)) : 0;
      launch(kernel,
             with_work<Tiles, S>(shape, in.s, length, 1, 1, bytes() + sums, in.s.dim * in.s.value_dim), in,
             segments_, tokens, states_.data());
    };
    with_tile_width<T>(std::max(in.s.dim, in.s.value_dim), run);
    const Scan scan = !in.s.causal ? Scan::all : reverse ? Scan::suffix : Scan::prefix;
    launch(scan_kernel<T>, over_elements(heads * size).moving(2 * bytes()), states_.data(), segments_, size,
           heads * size, scan);
  }

  const T* data() const { return states_.data(); }
  int64_t states_per_head() const { return segments_; }
  int64_t bytes() const { return count_ * static_cast<int64_t>(sizeof(T)); }

 private:
  // Returns enough segments to occupy a large device. The number depends only on the shape, so that sums are
  // the same on every device.
  static int64_t segment_count(const LinearAttentionShape& s, int64_t chunks) {
    constexpr int64_t kBlocks = 512;  // blocks that occupy a large device
    const int64_t wanted = std::max<int64_t>(kBlocks / std::max<int64_t>(s.batch * s.heads, 1), 1);
    return std::clamp<int64_t>(wanted, 1, std::max<int64_t>(chunks, 1));
  }

  int64_t chunks_, segments_, count_;
  Scratch<T> states_;
};

template <Reading kReading, class Tiles, class R, class T = typename Tiles::Value,
          class S = typename Tiles::Stored>
void read(const LinearInputs<S>& in, const LinearStates<Tiles>& states, R* result, T* inverse = nullptr) {
  constexpr bool kReverse = kReading == Reading::key_gradient || kReading == Reading::value_gradient;
  constexpr bool kToFeatures = kReading == Reading::query_gradient || kReading == Reading::key_gradient;
  const int64_t chunks = tiles_of(kReverse ? in.s.key_length : in.s.query_length, kTokens);
  const int64_t width = kToFeatures ? in.s.dim : in.s.value_dim;
  const int64_t length = kReverse ? in.s.key_length : in.s.query_length, heads = in.s.batch * in.s.heads;
  // `features` and `values` are the numbers of accessed tensors of width dim and value_dim. The causal form
  // also reads the operands of the products inside a chunk. Gradients with respect to q and k also read the
  // inputs of the feature map, for its derivative. `others` includes the inverse denominators and dd.
  constexpr int64_t kMapped = kReading == Reading::result || kReading == Reading::value_gradient ? 1 : 0;
  const int64_t features = (in.s.causal ? 1 : 0) + 1, values = (in.s.causal ? 1 : 0) + 1 - kMapped;
  const int64_t others =
      states.bytes() +
      heads * length * (width * static_cast<int64_t>(sizeof(R)) + 2 * static_cast<int64_t>(sizeof(T)));
  const int64_t in_chunk = in.s.causal ? kTokens * (in.s.dim + in.s.value_dim) : 0;
  auto run = [&](auto tile) {
    constexpr int kWidth = decltype(tile)::value;
    const Launch shape =
        over_tiles(heads * chunks, tiles_of(width, kWidth), Tiles::kThreads, Tiles::Memory::kBytes);
    launch(read_kernel<Tiles, kReading, kWidth, R>,
           with_work<Tiles, S>(shape, in.s, length, features, values, others,
                               in.s.dim * in.s.value_dim + in_chunk),
           in, chunks, states.data(), states.states_per_head(), result, inverse);
  };
  with_tile_width<T>(width, run);
}

}  // namespace

template <class S>
void linear_attention_forward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                              AttentionRows<const S> k, AttentionRows<const S> v, S* out,
                              Compute<S>* inverse_denominators) {
  const LinearInputs<S> in{s, q, k, v, {}, nullptr, nullptr};
  read<Reading::result>(in, LinearStates<TilesFor<S>>(in, false), out, inverse_denominators);
}

template <class S>
void linear_attention_backward(Backend, const LinearAttentionShape& s, AttentionRows<const S> q,
                               AttentionRows<const S> k, AttentionRows<const S> v, const S* out,
                               const Compute<S>* inverse_denominators, AttentionRows<const S> g,
                               AttentionGradients<S> gradients) {
  using T = Compute<S>;
  // The gradient of a query is a sum of dn . v + dd over all keys, in which the common part of the values
  // cancels. Rounding out, dn and states to bfloat16 leaves an error that grows with the length. Therefore
  // the result is recomputed, and the gradient computed, with operands of two bfloat16 parts.
  constexpr bool kRounds = !std::is_same_v<S, T>;
  using Exact = std::conditional_t<kRounds, SplitTensorTiles, PlainTiles<S>>;
  const int64_t rows = s.batch * s.heads * s.query_length;
  const Scratch<T> dd(rows), exact(kRounds ? rows * s.value_dim : 0);
  const LinearInputs<S> in{s, q, k, v, g, inverse_denominators, dd.data()};
  std::optional<LinearStates<Exact>> states;
  if (kRounds || gradients.gq) states.emplace(in, false);
  const auto set_dd = [&](const auto* result) {
    row_dots(g, contiguous_rows(result, s.query_length, s.heads, s.value_dim), inverse_denominators, T{-1},
             s.batch, s.query_length, s.heads, s.value_dim, dd.data());
  };
  if constexpr (kRounds) {
    read<Reading::result>(in, *states, exact.data());
    set_dd(static_cast<const T*>(exact.data()));
  } else {
    set_dd(out);
  }
  if (gradients.gq) read<Reading::query_gradient>(in, *states, gradients.gq);
  states.reset();
  if (!gradients.gk && !gradients.gv) return;
  const LinearStates<TilesFor<S>> suffixes(in, true);
  if (gradients.gk) read<Reading::key_gradient>(in, suffixes, gradients.gk);
  if (gradients.gv) read<Reading::value_gradient>(in, suffixes, gradients.gv);
}

template <class T>
struct LinearAttentionKernels {
  inline static const Instances all{&linear_attention_forward<T>, &linear_attention_backward<T>};
};
TAPEFORMER_FLOAT(template struct LinearAttentionKernels<float>;
                 template struct LinearAttentionKernels<BFloat16>;)
TAPEFORMER_DOUBLE(template struct LinearAttentionKernels<double>;)

}  // namespace tapeformer::cuda
