// The kernels of linear attention for bfloat16 tensors whose rows are aligned to 16 bytes and have at most 64
// elements. A thread block loads the rows of a chunk once, keeps the state in registers, and computes matrix
// products on tensor cores. linear_attention.cu describes chunks, segments and states, and defines the
// symbols.
#pragma once

#include "ops/cuda/linear_attention_chunk.h"

namespace tapeformer::cuda {

// The operations of a scan on one chunk of a head.
//
// Scan::query_gradient needs operands that are more accurate than bfloat16, because large terms of its sums
// cancel. The gradient with respect to phi(q) is the sum of (dn . v + dd) * phi(k) over the keys, where dn is
// the gradient of the numerator and dd is the gradient of the denominator. A component that is common to all
// values v contributes to dn . v and to dd, and the two contributions cancel. If out, dn and the states were
// rounded to bfloat16, the cancellation would be inexact, and the error would grow with the length of the
// sequence. Therefore each element of phi(q), phi(k), dn and the states is represented as the sum of two
// bfloat16 numbers, and dd is computed from a float32 result.
template <Scan kScan, int kWidth>
class TensorCoreScan {
  using S = BFloat16;
  static constexpr bool kIsReverse = kScan == Scan::key_value_gradients;
  static constexpr int kParts = kScan == Scan::query_gradient ? 2 : 1;
  // Scan::key_value_gradients also needs two parts of phi(k), to compute the derivative of phi.
  static constexpr int kKeyParts = kScan == Scan::result ? 1 : 2;
  using QueryRows = ChunkRows<kWidth, ChunkOperand::features, kParts>;
  using KeyRows = ChunkRows<kWidth, ChunkOperand::features, kKeyParts>;
  using ValueRows = ChunkRows<kWidth, ChunkOperand::values, 1>;
  using GradientRows = ChunkRows<kWidth, ChunkOperand::gradients, kParts>;
  using State = ChunkState<kWidth, kParts>;
  using Sums = TensorCoreTile<kTileTokens, kWidth>;
  using Products = TensorCoreTile<kTileTokens, 16>;
  static constexpr int kRowsPerThread = Sums::kRowsPerThread;
  // Shared memory contains, in this order: the operands that are added to the state, the other operands, and
  // a copy of the state.
  static constexpr int kQueryPairs = QueryRows::kPairs, kKeyPairs = KeyRows::kPairs,
                       kValuePairs = ValueRows::kPairs,
                       kGradientPairs = kScan == Scan::result ? 0 : GradientRows::kPairs;
  static constexpr int kStateRowPairs =
      kIsReverse ? kTileTokens + kQueryPairs + kGradientPairs : kKeyPairs + kValuePairs;
  static constexpr int kQueryOffset = kIsReverse ? kTileTokens : kStateRowPairs,
                       kGradientOffset = kQueryOffset + kQueryPairs,
                       kKeyOffset = kIsReverse ? kStateRowPairs : 0, kValueOffset = kKeyOffset + kKeyPairs,
                       kStateOffset =
                           kIsReverse ? kValueOffset + kValuePairs : kGradientOffset + kGradientPairs;

 public:
  // Bytes of dynamic shared memory: kStateRowBytes if a kernel loads only the rows that are added to the
  // state, otherwise kSharedBytes.
  static constexpr size_t kStateRowBytes = kStateRowPairs * sizeof(uint32_t),
                          kSharedBytes = (kStateOffset + State::kPairs) * sizeof(uint32_t);

  __device__ TensorCoreScan(const LinearAttentionInputs<S>& in, const LinearAttentionOutputs<S>& outputs,
                            const LinearAttentionHead<S>& head)
      : in_(in),
        outputs_(outputs),
        head_(head),
        queries_(get_dynamic_shared_memory<uint32_t>() + kQueryOffset),
        keys_(get_dynamic_shared_memory<uint32_t>() + kKeyOffset),
        values_(get_dynamic_shared_memory<uint32_t>() + kValueOffset),
        gradients_(get_dynamic_shared_memory<uint32_t>() + kGradientOffset),
        state_(get_dynamic_shared_memory<uint32_t>() + kStateOffset),
        dd_(get_dynamic_shared_memory<float>()) {}

  __device__ State& state() { return state_; }

  // Loads rows of the chunk that begins at token `begin` into shared memory. If has_state_rows is true, loads
  // the state rows, which add_tokens_to_state() reads. If kHasOutputRows is true, loads the output rows,
  // which are all rows except the state rows. store() reads the output rows and, with a causal mask, also the
  // state rows. All threads of the block must call load_rows(), and must synchronise before they read the
  // rows.
  template <bool kHasOutputRows>
  __device__ void load_rows(int64_t begin, bool has_state_rows) const {
    const bool has_queries = kIsReverse ? has_state_rows : kHasOutputRows,
               has_gradients = has_queries && kScan != Scan::result,
               has_keys = kIsReverse ? kHasOutputRows : has_state_rows;
    const int token = static_cast<int>(threadIdx.x);
    const bool has_dd = kIsReverse && has_state_rows && token < kTileTokens;
    typename QueryRows::Packs queries;
    typename GradientRows::Packs gradients;
    typename KeyRows::Packs keys;
    typename ValueRows::Packs values;
    float dd = 0;
    const auto store_keys_and_values = [&] {
      keys_.store(keys, head_.keys, begin);
      values_.store(values, head_.values, begin);
    };
    // If the rows are wide, the operands are fetched in two steps, because a thread has too few registers for
    // all operands.
    constexpr bool kHasTwoSteps = kWidth > 32;
    if (has_keys) keys = keys_.fetch(head_.keys, begin);
    if (has_keys) values = values_.fetch(head_.values, begin);
    if (has_keys && kHasTwoSteps) store_keys_and_values();
    if (has_queries) queries = queries_.fetch(head_.queries, begin);
    if (has_gradients) gradients = gradients_.fetch(head_.dn, begin);
    if (has_dd && begin + token < head_.queries.count) dd = head_.dd[begin + token];
    if (has_keys && !kHasTwoSteps) store_keys_and_values();
    if (has_queries) queries_.store(queries, head_.queries, begin);
    if (has_gradients) gradients_.store(gradients, head_.dn, begin);
    if (has_dd) dd_[token] = dd;
  }
  __device__ void add_tokens_to_state() {
    if constexpr (kIsReverse)
      state_.add_tokens(queries_, gradients_, dd_);
    else
      state_.add_tokens(keys_, values_, nullptr);
  }

  // Computes and writes the outputs of the scan for the chunk that begins at token `begin`.
  __device__ void store(int64_t begin) const {
    if constexpr (kScan == Scan::result) store_result(begin);
    if constexpr (kScan == Scan::query_gradient) store_query_gradient(begin);
    if constexpr (kScan == Scan::key_value_gradients) store_key_value_gradients(begin);
  }

 private:
  // For each row i of `rows` and each row j of `columns` that the causal mask allows, computes
  //   p(i, j) = adjust(row i of `rows` . row j of `columns`, i, j)
  //   row i of `sums` += p(i, j) * row j of `values`
  // The second argument of `adjust` is not i itself, but the index of row i in the arrays of the calling
  // thread.
  template <int kRowParts, class Columns, class Values, class Adjust>
  __device__ void add_chunk_products(Sums& sums, const WarpRows<kWidth, kRowParts>& rows,
                                     const Columns& columns, const Values& values, Adjust adjust) const {
    const int diagonal = static_cast<int>(threadIdx.x) / kWarpSize * 16,
              end = kIsReverse ? kTileTokens : diagonal + 16;
#pragma unroll 1
    for (int first = kIsReverse ? diagonal : 0; first < end; first += 16) {
      Products products;
#pragma unroll
      for (int k = 0; k < kWidth; k += 16)
        add_part_products<typename QueryRows::RowLayout, kRowParts, Columns::kPartCount>(
            products, [&](int part) { return rows.fragments[part][k / 16]; }, columns.operand(first), k);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i)
#pragma unroll
        for (int j = 0; j < Products::kColumnsPerThread; ++j) {
          const int column = first + Products::column(j);
          float& product = products.elements[i][j];
          const bool is_masked =
              first == diagonal && (kIsReverse ? column < Products::row(i) : column > Products::row(i));
          product = is_masked ? 0 : adjust(product, i, column);
        }
      add_part_products<typename QueryRows::TokenLayout, kRowParts, Values::kPartCount>(
          sums, [&](int part) { return products.make_left_fragment(0, part); }, values.operand(), first);
    }
  }

  // Computes the numerators of the result in `sums`, and the reciprocals of the denominators in `inverse`.
  __device__ void compute_result(Sums& sums, float (&inverse)[kRowsPerThread]) const {
    const WarpRows<kWidth, kParts> queries(queries_);
    float row_sums[kRowsPerThread] = {};
    if (in_.s.causal)
      add_chunk_products(sums, queries, keys_, values_, [&](float product, int i, int) {
        row_sums[i] += product;
        return product;
      });
    state_.template add_product<typename State::FeatureLayout>(sums, queries);
    const VectorProduct product = state_.multiply_vector(queries);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
      inverse[i] = 1 / (static_cast<float>(in_.s.eps) +
                        Sums::template reduce_row<Plus>(row_sums[i] + product.terms(i)));
  }

  __device__ void store_result(int64_t begin) const {
    Sums sums;
    float inverse[kRowsPerThread];
    compute_result(sums, inverse);
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i)
      if (const int64_t position = begin + Sums::row(i);
          outputs_.inverse_denominators && Sums::is_row_leader() && position < in_.s.query_length)
        outputs_.inverse_denominators[head_.row_offset + position] = inverse[i];
    store_rows(outputs_.out, sums, begin, in_.s.query_length, in_.s.value_dim, inverse);
  }

  // Computes dd, which is the gradient of the denominators, and the gradients of the queries, and writes both
  // to global memory.
  __device__ void store_query_gradient(int64_t begin) const {
    float dd[kRowsPerThread] = {};
    {
      Sums result;
      float inverse[kRowsPerThread];
      compute_result(result, inverse);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
#pragma unroll
        for (int j = 0; j < Sums::kColumnsPerThread; j += 2) {
          float gradients[2];
          gradients_.load_pair(Sums::row(i), Sums::column(j), gradients);
          dd[i] -= result.elements[i][j] * gradients[0] + result.elements[i][j + 1] * gradients[1];
        }
        dd[i] = Sums::template reduce_row<Plus>(dd[i]) * inverse[i];
        const int64_t position = begin + Sums::row(i);
        if (position < in_.s.query_length && Sums::is_row_leader())
          in_.dd[head_.row_offset + position] = dd[i];
      }
    }
    if (!outputs_.gq.data) return;
    const WarpRows<kWidth, kParts> gradients(gradients_);
    Sums sums;
    if (in_.s.causal)
      add_chunk_products(sums, gradients, values_, keys_,
                         [&](float product, int i, int) { return product + dd[i]; });
    state_.template add_product<typename State::ValueLayout>(sums, gradients);
    apply_feature_derivative(sums, queries_, head_.queries, begin, dd);
    const float ones[] = {1, 1};
    store_rows(outputs_.gq, sums, begin, in_.s.query_length, in_.s.dim, ones);
  }

  __device__ void store_key_value_gradients(int64_t begin) const {
    const float ones[] = {1, 1};
    if (outputs_.gk.data) {
      const WarpRows<kWidth, 1> values(values_);
      Sums sums;
      if (in_.s.causal)
        add_chunk_products(sums, values, gradients_, queries_,
                           [&](float product, int, int column) { return product + dd_[column]; });
      state_.template add_product<typename State::ValueLayout>(sums, values);
      apply_feature_derivative(sums, keys_, head_.keys, begin, ones);
      store_rows(outputs_.gk, sums, begin, in_.s.key_length, in_.s.dim, ones);
    }
    if (outputs_.gv.data) {
      const WarpRows<kWidth, 1> keys(keys_);
      Sums sums;
      if (in_.s.causal)
        add_chunk_products(sums, keys, queries_, gradients_, [](float product, int, int) { return product; });
      state_.template add_product<typename State::FeatureLayout>(sums, keys);
      store_rows(outputs_.gv, sums, begin, in_.s.key_length, in_.s.value_dim, ones);
    }
  }

  // Replaces the gradients with respect to phi(x) in `sums` by gradients with respect to x. Before the
  // replacement, adds factors[i] times the vector of the state to row i of `sums`, which is the gradient
  // through the denominators. `features` contains phi(x). Gradients of masked keys are set to 0.
  template <class Features>
  __device__ void apply_feature_derivative(Sums& sums, const Features& features, const HeadRows<S>& rows,
                                           int64_t begin, const float (&factors)[kRowsPerThread]) const {
    const float* const vector = state_.vector();
    visit_feature_map(rows.feature_map, [&](auto phi) {
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i) {
        const bool is_masked = begin + Sums::row(i) >= rows.count;
#pragma unroll
        for (int j = 0; j < Sums::kColumnsPerThread; j += 2) {
          float mapped[2];
          features.load_pair(Sums::row(i), Sums::column(j), mapped);
#pragma unroll
          for (int v = 0; v < 2; ++v) {
            float& gradient = sums.elements[i][j + v];
            gradient += factors[i] * vector[(Sums::column(j) + v) * State::kVectorStride];
            gradient = is_masked ? 0 : gradient * phi.template derivative<DeviceMath>(mapped[v], mapped[v]);
          }
        }
      }
    });
  }

  // Writes row i of `sums`, multiplied by factors[i], to `target`, whose rows have `width` elements.
  __device__ void store_rows(const AttentionRows<S>& target, const Sums& sums, int64_t begin, int64_t length,
                             int64_t width, const float (&factors)[kRowsPerThread]) const {
#pragma unroll
    for (int i = 0; i < kRowsPerThread; ++i) {
      const int64_t position = begin + Sums::row(i);
      if (position >= length) continue;
      S* const row = target.row(head_.example, position, head_.head);
#pragma unroll
      for (int j = 0; j < Sums::kColumnsPerThread; j += 2) {
        const float pair[] = {factors[i] * sums.elements[i][j], factors[i] * sums.elements[i][j + 1]};
        if (Sums::column(j) < width) store_group<2>(row + Sums::column(j), pair);
      }
    }
  }

  const LinearAttentionInputs<S>& in_;
  const LinearAttentionOutputs<S>& outputs_;
  const LinearAttentionHead<S>& head_;
  const QueryRows queries_;
  const KeyRows keys_;
  const ValueRows values_;
  const GradientRows gradients_;  // dn, the gradient of the numerators
  State state_;
  float* dd_;  // dd of the queries of the chunk; used only if kIsReverse is true
};

// Computes the states of segments on tensor cores, like segment_state_kernel (linear_attention.cu).
template <Scan kScan, int kWidth>
__global__ void __launch_bounds__(kTensorCoreThreads)
    tensor_core_state_kernel(LinearAttentionInputs<BFloat16> in, LinearAttentionSegments<float> segments,
                             float* states) {
  const LinearAttentionHead<BFloat16> head(in, blockIdx.x / segments.segments_per_head);
  const LinearAttentionOutputs<BFloat16> outputs;
  TensorCoreScan<kScan, kWidth> scan(in, outputs, head);
  const int64_t begin = blockIdx.x % segments.segments_per_head * segments.tokens_per_segment;
  const int64_t length = kScan == Scan::key_value_gradients ? in.s.query_length : head.keys.count,
                end = begin + segments.tokens_per_segment < length ? begin + segments.tokens_per_segment
                                                                   : length;
  for (int64_t chunk = begin; chunk < end; chunk += kTileTokens) {
    if (chunk > begin) __syncthreads();
    scan.template load_rows<false>(chunk, true);
    __syncthreads();
    scan.add_tokens_to_state();
  }
  scan.state().store(in, states + int64_t{blockIdx.x} * in.state_size());
}

// Returns the minimum number of resident blocks of tensor_core_scan_kernel per multiprocessor.
template <Scan kScan, int kWidth>
[[maybe_unused]] constexpr int choose_resident_tensor_core_blocks() {
  if (kWidth <= 32) return 4;
  return kScan == Scan::result ? 3 : 2;
}

// Computes the outputs of a scan on tensor cores, like segment_scan_kernel (linear_attention.cu).
template <Scan kScan, int kWidth>
__global__ void __launch_bounds__(kTensorCoreThreads, choose_resident_tensor_core_blocks<kScan, kWidth>())
    tensor_core_scan_kernel(LinearAttentionInputs<BFloat16> in, LinearAttentionSegments<float> segments,
                            LinearAttentionOutputs<BFloat16> outputs) {
  constexpr bool kIsReverse = kScan == Scan::key_value_gradients;
  const unsigned index = blockIdx.x / segments.segments_per_head,
                 segment = blockIdx.x % segments.segments_per_head;
  const LinearAttentionHead<BFloat16> head(in, index);
  TensorCoreScan<kScan, kWidth> scan(in, outputs, head);
  const SegmentRange range = find_segment_range(in.s, segments, segment, kIsReverse);
  scan.state().add_states(in, segments.states + index * segments.states_per_head * in.state_size(),
                          range.first_state, range.last_state);
  for (int64_t c = 0; c < range.chunks; ++c) {
    const int64_t chunk = range.begin + (kIsReverse ? range.chunks - 1 - c : c) * kTileTokens;
    if (c > 0) __syncthreads();
    scan.template load_rows<true>(chunk, in.s.causal);
    if (c == 0 || in.s.causal) scan.state().publish();
    __syncthreads();
    scan.store(chunk);
    if (in.s.causal && c + 1 < range.chunks) scan.add_tokens_to_state();
  }
}

}  // namespace tapeformer::cuda
