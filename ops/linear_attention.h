// Linear attention: "Transformers are RNNs" (Katharopoulos et al. 2020), sections 3.2 to 3.4. With positive
// features phi of queries and keys,
//   out_i = sum_j (phi(q_i) . phi(k_j)) v_j / (sum_j phi(q_i) . phi(k_j) + eps),
// over all keys, or over j <= i in the causal form. Time and memory grow with the length, not with its
// square.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

struct LinearAttentionOptions {
  bool causal = false;
  Tensor key_lengths =
      {};  // (batch,) int64 in [0, key_length]: keys from there on do not count; undefined: all count
  FeatureMap feature_map = FeatureMap::elu_plus_one;
  double eps = 1e-6;
};

// q (batch, query_length, heads, dim), k (batch, key_length, heads, dim), v (batch, key_length, heads,
// value_dim), all float32 or float64, on a device also bfloat16; result (batch, query_length, heads,
// value_dim), contiguous. Inputs are read through their strides; only a last dimension that is not contiguous
// is copied. A query that sees no key gets zeros. backward() needs q, k, v, the result and one number per
// row, and repeats the forward scan. Errors: ShapeError for shapes that do not fit, or a causal form whose
// query and key lengths differ.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        const LinearAttentionOptions& options = {});

// What the causal form remembers of the past (equations 16 and 17), all zeros at the start of a sequence.
struct LinearAttentionState {
  Tensor kv;       // (batch, heads, dim, value_dim): sum of phi(k) v^T
  Tensor key_sum;  // (batch, heads, dim): sum of phi(k)
};
LinearAttentionState make_linear_attention_state(int64_t batch, int64_t heads, int64_t dim, int64_t value_dim,
                                                 DType dtype = DType::float32, Device device = kCpu);

// One token of the causal form (equations 18 to 20): takes k and v into the state, then writes what q reads.
// q, k (batch, heads, dim), v and out (batch, heads, value_dim), last dimensions contiguous. Not recorded;
// allocates nothing. Of the options, causal and key_lengths are not used. Errors: ShapeError.
void linear_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                           const LinearAttentionState& state, const Tensor& out,
                           const LinearAttentionOptions& options = {});

}  // namespace tapeformer
