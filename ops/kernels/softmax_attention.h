// Softmax attention (Vaswani et al. 2017): out_i = sum_j softmax_j(scale q_i . k_j) v_j. Scores are processed
// block by block with an online softmax (Dao et al. 2022, "FlashAttention"; Rabe and Staats 2021), so that
// memory is linear in the length.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/dropout.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/key_pattern.h"

namespace tapeformer {

struct SoftmaxAttentionShape {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, dim = 0, value_dim = 0;
  bool causal = false;  // query i attends to keys 0 to i + key_length - query_length
  // Valid key lengths (batch,), in [0, key_length]. Later keys are masked. If null, no key is masked.
  const int64_t* key_lengths = nullptr;
  KeyPattern pattern = {};  // limited patterns require query_length = key_length
  double scale = 1;
  // Dropout of the probabilities. The index of query i and key j in the mask is ((batch * heads + head) *
  // query_length + i) * key_length + j, where `batch` and `head` are indices.
  DropoutMask dropout;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, query_length, heads, value_dim), contiguous, and log_sums (batch, heads,
    // query_length), the log-sum-exp of the scaled scores. The result of a query that attends to no key is
    // zero, and its log-sum-exp is -inf.
    template <class T> void softmax_attention_forward(Backend, const SoftmaxAttentionShape& shape,
                                                      AttentionRows<const T> q, AttentionRows<const T> k,
                                                      AttentionRows<const T> v, T* out, Compute<T>* log_sums);

    // Computes the gradients from the gradient g of out.
    template <class T>
    void softmax_attention_backward(Backend, const SoftmaxAttentionShape& shape, AttentionRows<const T> q,
                                    AttentionRows<const T> k, AttentionRows<const T> v, const T* out,
                                    const Compute<T>* log_sums, AttentionRows<const T> g,
                                    AttentionGradients<T> gradients);

    // Computes one query per head over a cache of keys and values, a ring buffer of `capacity` rows. Position
    // p is in row p modulo capacity. Writes key and value to position key_length - 1. On CUDA, each replay of
    // a graph advances this position (GraphStep). The query attends to the keys of its pattern up to its own
    // position. These keys must be among the last `capacity` positions. q, key, value and out have length 1.
    // The kernel ignores query_length, causal, key_lengths and dropout of the shape, and allocates no memory.
    template <class T>
    void softmax_attention_step(Backend, const SoftmaxAttentionShape& shape, AttentionRows<const T> q,
                                AttentionRows<const T> key, AttentionRows<const T> value,
                                AttentionRows<T> keys, AttentionRows<T> values, int64_t capacity,
                                AttentionRows<T> out);)

}  // namespace tapeformer
