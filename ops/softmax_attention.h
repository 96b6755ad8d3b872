// Softmax attention (Vaswani et al. 2017, section 3.2): out_i = sum_j softmax_j(scale q_i . k_j) v_j.
#pragma once

#include "autograd/tape.h"
#include "core/rng.h"

namespace tapeformer {

struct SoftmaxAttentionOptions {
  bool causal = false;  // query i sees keys up to i + key_length - query_length
  Tensor key_lengths =
      {};  // (batch,) int64 in [0, key_length]: keys from there on do not count; undefined: all count
  double scale = 0;  // of the scores; 0: 1 / sqrt(dim)
  double dropout =
      0;  // share of the probabilities that is set to zero, the others are divided by 1 - dropout
  RandomStream dropout_stream = {};  // element ((batch heads + head) query_length + i) key_length + j
};

// q (batch, query_length, heads, dim), k (batch, key_length, heads, dim), v (batch, key_length, heads,
// value_dim), all float32 or float64, on a device also bfloat16; result (batch, query_length, heads,
// value_dim), contiguous. Inputs are read through their strides; only a last dimension that is not contiguous
// is copied. A query that sees no key gets zeros. Works block by block with an online softmax (Dao et al.
// 2022, "FlashAttention") and never holds query_length x key_length numbers; backward() works the scores out
// again. Errors: ShapeError.
Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const SoftmaxAttentionOptions& options = {});

// The same function the plain way, with all scores in memory: what the fused form is checked against, and the
// baseline of "Transformers are RNNs".
Tensor plain_softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SoftmaxAttentionOptions& options = {});

// Keys and values of the tokens so far, in memory for `capacity` tokens.
struct KeyValueCache {
  Tensor keys;    // (batch, capacity, heads, dim), contiguous
  Tensor values;  // (batch, capacity, heads, value_dim), contiguous
  int64_t length = 0;
};

// One token of the causal form: appends k and v to the cache, then writes what q reads from it. q, k (batch,
// heads, dim), v and out (batch, heads, value_dim), last dimensions contiguous. scale 0: 1 / sqrt(dim). Not
// recorded; allocates nothing. Errors: ShapeError for shapes that do not fit, or a full cache.
void softmax_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache,
                            const Tensor& out, double scale = 0);

}  // namespace tapeformer
