// Kernels of softmax attention (Vaswani et al. 2017), which compute
//   out_i = sum_j softmax_j(scale q_i . k_j + bias_ij) v_j.
// Scores are processed block by block with an online softmax (Dao et al. 2022, "FlashAttention"; Rabe and
// Staats 2021), so the memory is linear in the length.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/random/dropout.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/key_pattern.h"

namespace tapeformer {

struct SoftmaxAttentionShape {
  int64_t batch = 0, query_length = 0, key_length = 0, heads = 0, dim = 0, value_dim = 0;
  // Number of adjacent heads of queries that read one head of keys and values. k and v have heads /
  // head_group heads.
  int64_t head_group = 1;
  bool causal = false;  // query i attends to keys 0 to i + key_length - query_length
  // Valid lengths of the keys (batch,), in [0, key_length]. Keys at later positions are masked. If null, no
  // key is masked.
  const int64_t* key_lengths = nullptr;
  KeyPattern pattern = {};  // pattern.is_limited() requires query_length = key_length
  double scale = 1;         // multiplier of the scores
  // Dropout of the attention probabilities. The elements of the mask form a contiguous array (batch, heads,
  // query_length, key_length).
  DropoutMask dropout;

  // Returns the head of keys and values that a head of queries reads.
  TAPEFORMER_HOST_DEVICE int64_t key_head(int64_t head) const {
    return static_cast<unsigned>(head) / static_cast<unsigned>(head_group);
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, query_length, heads, value_dim), contiguous, and log_sums (batch, heads,
    // query_length), the log-sum-exp of the scores of each query. If a query attends to no key, its result is
    // 0 and its log-sum-exp is -inf. Row (example, query, head) of `bias` has one element per key. If
    // bias.data is null, the bias is 0.
    template <class T>
    void softmax_attention_forward(Backend, const SoftmaxAttentionShape& shape, AttentionRows<const T> q,
                                   AttentionRows<const T> k, AttentionRows<const T> v,
                                   AttentionRows<const Compute<T>> bias, T* out, Compute<T>* log_sums);

    // Computes the gradients of q, k and v, and gbias, the gradient of the bias, from the gradient g of out.
    // gbias.data is null if the gradient is not needed. The kernel writes no gradients of masked pairs, so
    // the caller sets gbias to 0.
    template <class T>
    void softmax_attention_backward(Backend, const SoftmaxAttentionShape& shape, AttentionRows<const T> q,
                                    AttentionRows<const T> k, AttentionRows<const T> v,
                                    AttentionRows<const Compute<T>> bias, const T* out,
                                    const Compute<T>* log_sums, AttentionRows<const T> g,
                                    AttentionGradients<T> gradients, AttentionRows<Compute<T>> gbias);

    // Computes causal attention for one token per sequence, at position key_length - 1. On CUDA, each replay
    // of a graph advances the position of the token (GraphStep). q, key, value and out have length 1.
    //
    // `keys` and `values` are ring buffers of `capacity` rows, with position p in row p % capacity. The
    // kernel writes `key` and `value` to the ring buffers, and then computes the attention. `pattern` must
    // select only keys at the last `capacity` positions of the sequence.
    //
    // The kernel ignores query_length, causal, key_lengths and dropout of the shape, and allocates no memory.
    template <class Stored>
    void softmax_attention_step(Backend, const SoftmaxAttentionShape& shape,
                                AttentionRows<const Compute<Stored>> q,
                                AttentionRows<const Compute<Stored>> key,
                                AttentionRows<const Compute<Stored>> value, AttentionRows<Stored> keys,
                                AttentionRows<Stored> values, int64_t capacity,
                                AttentionRows<Compute<Stored>> out);)

}  // namespace tapeformer
