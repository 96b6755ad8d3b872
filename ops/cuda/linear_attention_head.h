// Parameters of the kernels of linear attention: the tensors, the segments of the sequences, and the rows of
// one head. The comment of linear_attention.cu defines d, dn, dd and the states.
#pragma once

#include "ops/cuda/linear_attention_rows.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer::cuda {

// Number of columns that a state has in addition to the columns of its matrix. The first of these columns
// holds the vector of the state. The other columns are padding, which avoids bank conflicts.
inline constexpr int64_t kExtraStateColumns = 4;

// The input tensors of a scan, and `dd`, the gradient of the denominators. In a forward pass, `g`, `out`,
// inverse_denominators and `dd` are not set.
template <class S>
struct LinearAttentionInputs {
  LinearAttentionShape s;
  AttentionRows<const S> q, k, v, g, out;
  // Reciprocals of the denominators of the result, (batch, heads, query_length).
  const Compute<S>* inverse_denominators;
  // Gradient with respect to the denominators, (batch, heads, query_length). The scan that computes the
  // gradient of the queries writes it.
  Compute<S>* dd;

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

// The segments of consecutive tokens into which the sequence of each head is divided, and the states of
// segments.
template <class T>
struct LinearAttentionSegments {
  unsigned segments_per_head = 1;
  int64_t tokens_per_segment = 0;
  const T* states = nullptr;  // (batch, heads, states_per_head, state_size())
  int64_t states_per_head = 0;
  T* workspace = nullptr;  // one state per block; null if the state of a block is in shared memory
};

// The rows of the operands of one head.
template <class S>
struct LinearAttentionHead {
  int64_t example, head;
  int64_t row_offset;  // index of the first element of the head in LinearAttentionInputs::dd and
                       // inverse_denominators
  HeadRows<S> queries, keys, values, dn;
  const Compute<S>* dd;

  // `head_index` is example * heads + head. It is a 32-bit integer, because a division of 64-bit integers
  // takes many instructions and registers. `can_load_pack` states whether 16-byte loads can read all rows.
  __device__ LinearAttentionHead(const LinearAttentionInputs<S>& in, unsigned head_index, bool can_load_pack)
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
    for (HeadRows<S>* rows : {&queries, &keys, &values, &dn}) rows->can_load_pack = can_load_pack;
  }
};

}  // namespace tapeformer::cuda
