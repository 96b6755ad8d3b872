// Kernels of linear attention (Katharopoulos et al. 2020, sections 3.2 to 3.4), which compute
//   out_i = sum_j (phi(q_i) . phi(k_j)) v_j / d_i, where d_i = sum_j phi(q_i) . phi(k_j) + eps.
// phi is the feature map. The sums are over all keys j, or over j <= i in the causal form. If
// LinearAttentionShape::normalized is false, all d_i are 1.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

enum class FeatureMap {
  elu_plus_one,  // x + 1 for x > 0, else exp(x)
  relu,
  squared_relu,
  exponential,
  identity,  // only for sums without denominators
};

struct LinearAttentionShape {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, dim = 0, value_dim = 0;
  bool causal = false;  // requires query_length == key_length
  // Valid lengths of the keys (batch,), in [0, key_length]. Keys at later positions are masked. If null, no
  // key is masked.
  const int64_t* key_lengths = nullptr;
  FeatureMap feature_map = FeatureMap::elu_plus_one;
  double eps = 1e-6;
  bool normalized = true;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, query_length, heads, value_dim), contiguous. If inverse_denominators (batch,
    // heads, query_length) is not null, also writes 1 / d_i to this array.
    template <class T>
    void linear_attention_forward(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                                  AttentionRows<const T> k, AttentionRows<const T> v, T* out,
                                  Compute<T>* inverse_denominators);

    // Computes the gradients of q, k and v from the gradient g of out.
    template <class T>
    void linear_attention_backward(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                                   AttentionRows<const T> k, AttentionRows<const T> v, const T* out,
                                   const Compute<T>* inverse_denominators, AttentionRows<const T> g,
                                   AttentionGradients<T> gradients);

    // Computes one token of causal linear attention, equations 18 to 20 of the paper. Adds phi(k) vᵀ to the
    // state kv (batch, heads, dim, value_dim) and phi(k) to the state key_sum (batch, heads, dim). Then
    // computes out from q and the updated states. If numerator_k.data is not null, the kernel adds
    // numerator_k vᵀ to kv instead of phi(k) vᵀ. If numerator_q.data is not null, the numerator of out uses
    // numerator_q instead of phi(q).
    //
    // The states are contiguous. q, k, v and out have length 1. O is T, or O is bfloat16 and T is float. The
    // kernel uses only batch, heads, dim, value_dim, feature_map and eps of `shape`.
    template <class T, class O>
    void linear_attention_step(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                               AttentionRows<const T> k, AttentionRows<const T> v,
                               AttentionRows<const T> numerator_q, AttentionRows<const T> numerator_k, T* kv,
                               T* key_sum, AttentionRows<O> out);)

}  // namespace tapeformer
