// Linear attention (Katharopoulos et al. 2020, "Transformers are RNNs", sections 3.2 to 3.4). phi is a
// feature map. The result of query i is
//   out_i = sum_j (phi(q_i) . phi(k_j)) v_j / (sum_j phi(q_i) . phi(k_j) + eps),
// where the sums are over all keys j, or over j <= i in the causal form. Time and memory are linear in the
// length.
#pragma once

#include "autograd/tape.h"
#include "ops/attention_result.h"
#include "ops/kernels/linear_attention.h"

namespace tapeformer {

struct LinearAttentionOptions {
  bool causal = false;
  // Valid key lengths, (batch,) int64 in [0, key_length]. Later keys are masked. If undefined, no key is
  // masked.
  Tensor key_lengths = {};
  FeatureMap feature_map = FeatureMap::elu_plus_one;
  double eps = 1e-6;
  // If `normalized` is false, the result of query i is the numerator, sum_j (phi(q_i) . phi(k_j)) v_j.
  // FeatureMap::identity requires false, because a denominator of identity features can be 0 or negative.
  bool normalized = true;
};

// Returns linear attention of q (batch, query_length, heads, dim), k (batch, key_length, heads, dim) and v
// (batch, key_length, heads, value_dim), which are all float32, float64 or bfloat16. The result is a
// contiguous tensor (batch, query_length, heads, value_dim). If all keys of a query are masked, the result of
// the query is 0. An input is copied only if its last dimension is not contiguous.
//
// The tape keeps q, k, v, the result, and one inverse denominator per query and head. backward() computes the
// sums over the keys again. Throws ShapeError for mismatched shapes, for a causal form with different query
// and key lengths, and for FeatureMap::identity with denominators.
Tensor linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                        const LinearAttentionOptions& options = {});

// The passes of linear_attention(); see ops/attention_result.h. The gradients of q, k and v are the elements
// of `gradients`.
void linear_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const LinearAttentionOptions& options, const AttentionResult& result);
void linear_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionOptions& options, const AttentionResult& result,
                                    const Tensor& gradient, const Gradients& gradients);

// The state of the causal form (equations 16 and 17). The state is zero at the start of a sequence.
struct LinearAttentionState {
  // (batch, heads, dim, value_dim): sum of phi(k) v^T, or of NumeratorFeatures::k v^T
  Tensor kv;
  Tensor key_sum;  // (batch, heads, dim): sum of phi(k)
};
LinearAttentionState make_linear_attention_state(int64_t batch, int64_t heads, int64_t dim, int64_t value_dim,
                                                 DType dtype = DType::float32, Device device = kCpu);

// Features for the numerator of linear_attention_step(), for example rotated features. If q and k are
// undefined, the numerator uses phi(q) and phi(k). If q and k are defined, both have the shape,
// dtype and device of the query and a contiguous last dimension.
struct NumeratorFeatures {
  Tensor q, k;
};

// Processes one token of the causal form (equations 18 to 20). Adds phi(k) v^T and phi(k) to the state, and
// then computes `out` from q and the state. q and k are (batch, heads, dim), and v and `out` are (batch,
// heads, value_dim). All tensors are float32 or float64, and `out` may also be bfloat16 if q, k and v are
// float32. The last dimension of each tensor is contiguous. The call is not recorded, and allocates no
// memory if `out` has the dtype of q. The options causal and key_lengths are ignored. Throws ShapeError
// for mismatched shapes and dtypes, if options.normalized is false, and for FeatureMap::identity.
//
// If `numerator` contains features, the update of kv uses numerator.k instead of phi(k), and the numerator of
// `out` uses numerator.q instead of phi(q).
void linear_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                           const LinearAttentionState& state, const Tensor& out,
                           const LinearAttentionOptions& options = {},
                           const NumeratorFeatures& numerator = {});

}  // namespace tapeformer
