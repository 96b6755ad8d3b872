// Inputs, outputs and segments of linear attention, and the operands of one head.
#pragma once

#include "ops/cuda/linear_attention_rows.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer::cuda {

// Number of columns of a state after its matrix. They hold the vector of the state and avoid bank conflicts.
inline constexpr int64_t kStatePadding = 4;

template <class S>
struct LinearInputs {
  LinearAttentionShape s;
  AttentionRows<const S> q, k, v, g, out;
  const Compute<S>* inverse;  // 1 / d, (batch, heads, query_length)
  Compute<S>* dd;             // (batch, heads, query_length)

  TAPEFORMER_HOST_DEVICE int64_t state_stride() const { return s.value_dim + kStatePadding; }
  TAPEFORMER_HOST_DEVICE int64_t state_size() const { return s.dim * state_stride(); }
};

// Output tensors of a scan. Gradients without data and a null `inverse` are not computed.
template <class S>
struct LinearTargets {
  AttentionRows<S> out = {}, gq = {}, gk = {}, gv = {};
  Compute<S>* inverse = nullptr;  // 1 / d
};

// The segments of each head, and their states.
template <class T>
struct LinearSegments {
  unsigned count = 1;         // number of segments of a head
  int64_t tokens = 0;         // number of tokens of a segment
  const T* states = nullptr;  // (batch, heads, state_count, state size)
  int64_t state_count = 0;    // number of states of a head
  T* workspace = nullptr;     // one state per block; null if states are in shared memory
};

// The operands of one head. dn and dd are defined in the legend of linear_attention.cu.
template <class S>
struct LinearHead {
  int64_t example, head, offset;  // `offset` is the first element of the head in dd and inverse
  HeadRows<S> queries, keys, values, dn;
  const Compute<S>* dd;

  // `index` is example * heads + head. Division in 64 bits would take many instructions and registers.
  // `packed` states whether all rows can be read with 16-byte loads.
  __device__ LinearHead(const LinearInputs<S>& in, unsigned index, bool packed)
      : example(index / static_cast<unsigned>(in.s.heads)),
        head(index % static_cast<unsigned>(in.s.heads)),
        offset(index * in.s.query_length) {
    const int64_t valid = read_valid_length(in.s.key_lengths, example, in.s.key_length);
    queries = {{in.q.row(example, 0, head), in.q.length_stride, in.s.query_length, in.s.dim}};
    keys = {{in.k.row(example, 0, head), in.k.length_stride, valid, in.s.dim}};
    values = {{in.v.row(example, 0, head), in.v.length_stride, valid, in.s.value_dim}};
    queries.map = keys.map = in.s.feature_map;
    queries.mapped = keys.mapped = true;
    if (in.g.data)
      dn = {{in.g.row(example, 0, head), in.g.length_stride, in.s.query_length, in.s.value_dim},
            in.inverse + offset};
    dd = in.dd ? in.dd + offset : nullptr;
    for (HeadRows<S>* rows : {&queries, &keys, &values, &dn}) rows->is_packed = packed;
  }
};

}  // namespace tapeformer::cuda
