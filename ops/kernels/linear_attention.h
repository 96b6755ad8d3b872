// Linear attention (Katharopoulos et al. 2020, sections 3.2 to 3.4): with positive features phi,
//   out_i = sum_j (phi(q_i) . phi(k_j)) v_j / d_i,  d_i = sum_j phi(q_i) . phi(k_j) + eps,
// over all keys, or over j <= i in the causal form.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

enum class FeatureMap {
  elu_plus_one,  // x + 1 for x > 0, else exp(x)
  relu,
  squared_relu,
  exponential,
};

struct LinearAttentionShape {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, dim = 0, value_dim = 0;
  bool causal = false;  // requires query_length == key_length
  // Valid key lengths (batch,), in [0, key_length]. Later keys are masked. If null, no key is masked.
  const int64_t* key_lengths = nullptr;
  FeatureMap feature_map = FeatureMap::elu_plus_one;
  double eps = 1e-6;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, query_length, heads, value_dim), contiguous. If inverse_denominators (batch,
    // heads, query_length) is not null, writes 1 / d to it.
    template <class T>
    void linear_attention_forward(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                                  AttentionRows<const T> k, AttentionRows<const T> v, T* out,
                                  Compute<T>* inverse_denominators);

    // Computes the gradients from the gradient g of out.
    template <class T>
    void linear_attention_backward(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                                   AttentionRows<const T> k, AttentionRows<const T> v, const T* out,
                                   const Compute<T>* inverse_denominators, AttentionRows<const T> g,
                                   AttentionGradients<T> gradients);

    // Computes one token of the causal form, equations 18 to 20 of the paper. Adds k and v to the contiguous
    // states kv (batch, heads, dim, value_dim) and key_sum (batch, heads, dim), and then computes out from q
    // and the states. q, k, v and out have length 1. O is T, or bfloat16 if T is float. The kernel ignores
    // the lengths, causal and key_lengths of the shape.
    template <class T, class O>
    void linear_attention_step(Backend, const LinearAttentionShape& shape, AttentionRows<const T> q,
                               AttentionRows<const T> k, AttentionRows<const T> v, T* kv, T* key_sum,
                               AttentionRows<O> out);)

}  // namespace tapeformer
