// Parameters of the kernels of linear attention: the tensors, the segments of the sequences, and the rows of
// one head. dn and dd are the gradients of the numerators and denominators of the attention result.
// linear_attention.cu contains the equations of dn and dd, and describes the states.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/cuda/linear_attention_rows.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer::cuda {

// Number of columns that a state has in addition to the columns of its matrix. The first of these columns
// holds the vector of the state. The other columns are padding, which avoids bank conflicts.
inline constexpr int64_t kExtraStateColumns = 4;

// The tensors that a scan (see Scan) reads, and the array `dd`. `g` is the gradient of `out`. In a forward
// pass, `g`, `out`, inverse_denominators and `dd` are not set.
template <class S>
struct LinearAttentionInputs {
  LinearAttentionShape s;
  AttentionRows<const S> q, k, v, g, out;
  // Reciprocals of the denominators of the result, (batch, heads, query_length).
  const Compute<S>* inverse_denominators;
  // Gradient with respect to the denominators, with shape (batch, heads, query_length). Scan::query_gradient
  // writes this array, and Scan::key_value_gradients reads it.
  Compute<S>* dd;
  bool can_load_packs = false;  // whether 16-byte loads can read all rows

  TAPEFORMER_HOST_DEVICE int64_t state_stride() const { return s.value_dim + kExtraStateColumns; }
  TAPEFORMER_HOST_DEVICE int64_t state_size() const { return s.dim * state_stride(); }
};

// The output tensors of a scan. Outputs whose pointer is null are not written.
template <class S>
struct LinearAttentionOutputs {
  AttentionRows<S> out = {}, gq = {}, gk = {}, gv = {};
  // Reciprocals of the denominators of the result, (batch, heads, query_length).
  Compute<S>* inverse_denominators = nullptr;
};

// Returns a copy of `in` with the correct value of can_load_packs.
template <class S>
LinearAttentionInputs<S> make_inputs(LinearAttentionInputs<S> in) {
  if constexpr (std::is_same_v<S, BFloat16>)
    in.can_load_packs = are_aligned_to_packs(in.q, in.s.dim) && are_aligned_to_packs(in.k, in.s.dim) &&
                        are_aligned_to_packs(in.v, in.s.value_dim) &&
                        are_aligned_to_packs(in.g, in.s.value_dim);
  return in;
}
// Returns whether tensor_core_scan_kernel supports the tensors.
template <class S>
bool uses_tensor_core_scan(const LinearAttentionInputs<S>& in, const LinearAttentionOutputs<S>& outputs) {
  return std::is_same_v<S, BFloat16> && in.s.normalized && in.can_load_packs &&
         std::max(in.s.dim, in.s.value_dim) <= 64 && are_aligned_to_packs(outputs.out, in.s.value_dim) &&
         are_aligned_to_packs(outputs.gq, in.s.dim) && are_aligned_to_packs(outputs.gk, in.s.dim) &&
         are_aligned_to_packs(outputs.gv, in.s.value_dim);
}

// The division of the sequence of each head into segments of consecutive tokens, and the states of the
// segments.
template <class T>
struct LinearAttentionSegments {
  unsigned segments_per_head = 1;
  int64_t tokens_per_segment = 0;
  const T* states = nullptr;  // (batch, heads, states_per_head, state_size())
  int64_t states_per_head = 0;
  T* workspace = nullptr;  // one state per block; null if the states of the blocks are not in global memory
};

// The kind of a scan, which determines the tensors that the scan computes and the states that it uses:
//   result                the result (forward states)
//   query_gradient        dd and the gradient of the queries (forward states)
//   key_value_gradients   the gradients of the keys and values (reverse states)
enum class Scan { result, query_gradient, key_value_gradients };

// The chunks that a thread block scans, and the states whose sum is the initial state of the block.
struct SegmentRange {
  int64_t begin, chunks;            // first token and number of chunks
  int64_t first_state, last_state;  // states [first_state, last_state) of the head
};
template <class T>
__device__ SegmentRange find_segment_range(const LinearAttentionShape& s,
                                           const LinearAttentionSegments<T>& segments, unsigned segment,
                                           bool is_reverse) {
  const int64_t length = is_reverse ? s.key_length : s.query_length, count = segments.states_per_head;
  const int64_t begin = segment * segments.tokens_per_segment;
  const int64_t end =
      begin + segments.tokens_per_segment < length ? begin + segments.tokens_per_segment : length;
  return {begin, (end - begin + kTileTokens - 1) / kTileTokens, s.causal && is_reverse ? segment + 1 : 0,
          s.causal && !is_reverse && segment < count ? segment : count};
}

// The rows of the operands of one head.
template <class S>
struct LinearAttentionHead {
  int64_t example, head;
  int64_t row_offset;  // index of the first element of the head in LinearAttentionInputs::dd and
                       // inverse_denominators
  HeadRows<S> queries, keys, values, dn;
  const Compute<S>* dd;

  // `head_index` is example * heads + head. `head_index` is a 32-bit integer, because a division of 64-bit
  // integers takes many instructions and registers.
  __device__ LinearAttentionHead(const LinearAttentionInputs<S>& in, unsigned head_index)
      : example(head_index / static_cast<unsigned>(in.s.heads)),
        head(head_index % static_cast<unsigned>(in.s.heads)),
        row_offset(head_index * in.s.query_length) {
    const int64_t valid_length = get_valid_length(in.s.key_lengths, example, in.s.key_length);
    queries = {{in.q.row(example, 0, head), in.q.length_stride, in.s.query_length, in.s.dim}};
    keys = {{in.k.row(example, 0, head), in.k.length_stride, valid_length, in.s.dim}};
    values = {{in.v.row(example, 0, head), in.v.length_stride, valid_length, in.s.value_dim}};
    queries.feature_map = keys.feature_map = in.s.feature_map;
    queries.use_feature_map = keys.use_feature_map = true;
    if (in.g.data)
      dn = {{in.g.row(example, 0, head), in.g.length_stride, in.s.query_length, in.s.value_dim},
            in.inverse_denominators + row_offset};
    dd = in.dd ? in.dd + row_offset : nullptr;
    for (HeadRows<S>* rows : {&queries, &keys, &values, &dn}) rows->can_load_pack = in.can_load_packs;
  }
};

}  // namespace tapeformer::cuda
