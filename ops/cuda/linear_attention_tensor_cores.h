// The kernels of linear attention for bfloat16 tensors with rows of at most 64 elements that are aligned to
// 16 bytes. A block loads the rows of a chunk once, keeps the state in registers, and multiplies on tensor
// cores. linear_attention.cu describes chunks, segments and states, and defines the symbols.
#pragma once

#include "ops/cuda/instruction_counts.h"
#include "ops/cuda/linear_attention_chunk.h"

namespace tapeformer::cuda {

// The operations of a scan on one chunk of a head.
//
// The gradient of the queries with respect to phi(q) is the sum of (dn . v + dd) k over all keys. If all
// values have a common component, the terms of this component in dn . v and in dd cancel. If out, dn and the
// states were rounded to bfloat16, the terms would not cancel exactly, and the error would grow with the
// length of the sequence. For this reason, Scan::query_gradient represents each operand by two bfloat16
// numbers, and computes dd from the result in float32 instead of from in.out.
template <Scan kScan, int kWidth>
class TensorCoreScan {
  using S = BFloat16;
  static constexpr bool kIsReverse = kScan == Scan::key_value_gradients;
  static constexpr int kParts = kScan == Scan::query_gradient ? 2 : 1;
  // The derivative of the feature map is computed from both parts of phi(k).
  static constexpr int kKeyParts = kScan == Scan::result ? 1 : 2;
  using FeatureRows = ChunkRows<kWidth, kParts>;
  using KeyRows = ChunkRows<kWidth, kKeyParts>;
  using ValueRows = ChunkRows<kWidth, 1>;
  using State = ChunkState<kWidth, kParts>;
  using Sums = TensorCoreTile<kTileTokens, kWidth>;
  using Products = TensorCoreTile<kTileTokens, 16>;
  static constexpr int kRowsPerThread = Sums::kRowsPerThread;
  static constexpr int kGradientPairs = kScan == Scan::result ? 0 : FeatureRows::kPairs;
  static constexpr int kRowPairs = FeatureRows::kPairs + KeyRows::kPairs + ValueRows::kPairs + kGradientPairs;

 public:
  static constexpr size_t kSharedBytes =
      (kRowPairs + State::kPairs + (kIsReverse ? kTileTokens : 0)) * sizeof(uint32_t);
  // Instructions that a warp executes per chunk.
  static constexpr int kInstructions = (kScan == Scan::result           ? kLinearResult
                                        : kScan == Scan::query_gradient ? kLinearQueryGradient
                                                                        : kLinearKeyValueGradients)
                                           .count(kWidth);

  __device__ TensorCoreScan(const LinearAttentionInputs<S>& in, const LinearAttentionOutputs<S>& outputs,
                            const LinearAttentionHead<S>& head)
      : in_(in),
        outputs_(outputs),
        head_(head),
        queries_(get_dynamic_shared_memory<uint32_t>()),
        keys_(get_dynamic_shared_memory<uint32_t>() + FeatureRows::kPairs),
        values_(get_dynamic_shared_memory<uint32_t>() + FeatureRows::kPairs + KeyRows::kPairs),
        gradients_(get_dynamic_shared_memory<uint32_t>() + kRowPairs - kGradientPairs),
        state_(get_dynamic_shared_memory<uint32_t>() + kRowPairs),
        dd_(reinterpret_cast<float*>(get_dynamic_shared_memory<uint32_t>() + kRowPairs + State::kPairs)) {}

  __device__ State& state() { return state_; }

  // Loads the rows that add_tokens_to_state() reads, for the chunk that begins at token `begin`. All threads
  // of the block call the function, and synchronise before they read the rows.
  __device__ void load_state_rows(int64_t begin) const {
    if constexpr (kIsReverse) {
      load_queries_and_gradients(begin);
      const int token = static_cast<int>(threadIdx.x);
      if (token < kTileTokens) dd_[token] = begin + token < head_.queries.count ? head_.dd[begin + token] : 0;
    } else {
      load_keys_and_values(begin);
    }
  }
  // Loads the other rows that store() reads. Without a causal mask, store() reads only these rows.
  __device__ void load_output_rows(int64_t begin) const {
    if constexpr (kIsReverse) {
      load_keys_and_values(begin);
    } else if constexpr (kScan == Scan::query_gradient) {
      load_queries_and_gradients(begin);
    } else {
      queries_.template store<true>(queries_.fetch(head_.queries, begin), head_.queries, begin);
    }
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
  __device__ void load_keys_and_values(int64_t begin) const {
    const auto keys = keys_.fetch(head_.keys, begin);
    const auto values = values_.fetch(head_.values, begin);
    keys_.template store<true>(keys, head_.keys, begin);
    values_.template store<false>(values, head_.values, begin);
  }
  __device__ void load_queries_and_gradients(int64_t begin) const {
    const auto queries = queries_.fetch(head_.queries, begin), gradients = gradients_.fetch(head_.dn, begin);
    queries_.template store<true>(queries, head_.queries, begin);
    gradients_.template store<true>(gradients, head_.dn, begin);
  }

  // Adds to row i of `sums` the sum of p(i, j) * row j of `values` over all tokens j of the chunk that the
  // causal mask allows, where p(i, j) = adjust(row i of `rows` . row j of `columns`, i, j). In the arguments
  // of `adjust`, i is the index of the row in the arrays of the calling thread. Adds the terms of the sum of
  // p(i, j) over j that the calling thread holds to row_sums[i].
  template <int kRowParts, int kColumnParts, int kValueParts, class Adjust>
  __device__ void add_chunk_products(Sums& sums, float (&row_sums)[kRowsPerThread],
                                     const WarpRows<kWidth, kRowParts>& rows,
                                     const ChunkRows<kWidth, kColumnParts>& columns,
                                     const ChunkRows<kWidth, kValueParts>& values, Adjust adjust) const {
    const int diagonal = static_cast<int>(threadIdx.x) / kWarpSize * 16,
              end = kIsReverse ? kTileTokens : diagonal + 16;
#pragma unroll 1
    for (int first = kIsReverse ? diagonal : 0; first < end; first += 16) {
      Products products;
#pragma unroll
      for (int k = 0; k < kWidth; k += 16)
        add_part_products<typename FeatureRows::RowLayout, kRowParts, kColumnParts>(
            products, [&](int part) { return rows.fragments[part][k / 16]; }, columns.operand(first), k);
#pragma unroll
      for (int i = 0; i < kRowsPerThread; ++i)
#pragma unroll
        for (int j = 0; j < Products::kColumnsPerThread; ++j) {
          const int column = first + Products::column(j);
          float& product = products.elements[i][j];
          product = adjust(product, i, column);
          if (first == diagonal && (kIsReverse ? column < Products::row(i) : column > Products::row(i)))
            product = 0;
          row_sums[i] += product;
        }
      add_part_products<typename FeatureRows::TokenLayout, kRowParts, kValueParts>(
          sums, [&](int part) { return products.make_left_fragment(0, part); }, values.operand(), first);
    }
  }

  // Computes the result before the division by the denominators, and the reciprocals of the denominators.
  __device__ void compute_result(Sums& sums, float (&inverse)[kRowsPerThread]) const {
    const WarpRows<kWidth, kParts> queries(queries_);
    float row_sums[kRowsPerThread] = {};
    if (in_.s.causal)
      add_chunk_products(sums, row_sums, queries, keys_, values_,
                         [](float product, int, int) { return product; });
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

  // Computes dd and the gradients of the queries.
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
    float row_sums[kRowsPerThread] = {};
    if (in_.s.causal)
      add_chunk_products(sums, row_sums, gradients, values_, keys_,
                         [&](float product, int i, int) { return product + dd[i]; });
    state_.template add_product<typename State::ValueLayout>(sums, gradients);
    apply_feature_derivative(sums, queries_, head_.queries, begin, dd);
    const float ones[] = {1, 1};
    store_rows(outputs_.gq, sums, begin, in_.s.query_length, in_.s.dim, ones);
  }

  __device__ void store_key_value_gradients(int64_t begin) const {
    const float ones[] = {1, 1};
    float row_sums[kRowsPerThread] = {};
    if (outputs_.gk.data) {
      const WarpRows<kWidth, 1> values(values_);
      Sums sums;
      if (in_.s.causal)
        add_chunk_products(sums, row_sums, values, gradients_, queries_,
                           [&](float product, int, int column) { return product + dd_[column]; });
      state_.template add_product<typename State::ValueLayout>(sums, values);
      apply_feature_derivative(sums, keys_, head_.keys, begin, ones);
      store_rows(outputs_.gk, sums, begin, in_.s.key_length, in_.s.dim, ones);
    }
    if (outputs_.gv.data) {
      const WarpRows<kWidth, 1> keys(keys_);
      Sums sums;
      if (in_.s.causal)
        add_chunk_products(sums, row_sums, keys, queries_, gradients_,
                           [](float product, int, int) { return product; });
      state_.template add_product<typename State::FeatureLayout>(sums, keys);
      store_rows(outputs_.gv, sums, begin, in_.s.key_length, in_.s.value_dim, ones);
    }
  }

  // Completes gradients with respect to phi(x), and multiplies them by the derivative of phi. Adds `factor`
  // of the row times the vector of the state, which is the gradient that comes from the denominators.
  // `features` contains phi(x). Gradients of masked keys are set to 0.
  template <int kFeatureParts>
  __device__ void apply_feature_derivative(Sums& sums, const ChunkRows<kWidth, kFeatureParts>& features,
                                           const HeadRows<S>& rows, int64_t begin,
                                           const float (&factors)[kRowsPerThread]) const {
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
            gradient += factors[i] * vector[Sums::column(j) + v];
            gradient = is_masked ? 0 : gradient * phi.template derivative<DeviceMath>(mapped[v], mapped[v]);
          }
        }
      }
    });
  }

  // Writes the rows of a chunk, each multiplied by its factor, to `target`, whose rows have `width` elements.
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
  const FeatureRows queries_;
  const KeyRows keys_;
  const ValueRows values_;
  const FeatureRows gradients_;  // dn
  State state_;
  float* dd_;  // dd of the queries of the chunk, only if kIsReverse
};

// The version of segment_state_kernel (linear_attention.cu) for these tensors.
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
    scan.load_state_rows(chunk);
    __syncthreads();
    scan.add_tokens_to_state();
  }
  scan.state().store(in, states + int64_t{blockIdx.x} * in.state_size());
}

// Returns the minimum number of resident blocks per multiprocessor of tensor_core_scan_kernel.
template <Scan kScan, int kWidth>
[[maybe_unused]] constexpr int choose_resident_tensor_core_blocks() {
  if (kScan == Scan::query_gradient) return kWidth > 32 ? 2 : 4;
  return kWidth > 32 ? 3 : 4;
}

// The version of segment_scan_kernel (linear_attention.cu) for these tensors.
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
    if (in.s.causal) scan.load_state_rows(chunk);
    scan.load_output_rows(chunk);
    if (c == 0 || in.s.causal) scan.state().publish();
    __syncthreads();
    scan.store(chunk);
    if (in.s.causal && c + 1 < range.chunks) scan.add_tokens_to_state();
  }
}

}  // namespace tapeformer::cuda
