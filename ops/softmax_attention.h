// Softmax attention (Vaswani et al. 2017, section 3.2): out_i = sum_j softmax_j(scale q_i . k_j) v_j.
#pragma once

#include "autograd/tape.h"
#include "core/rng.h"
#include "ops/kernels/key_window.h"

namespace tapeformer {

struct SoftmaxAttentionOptions {
  bool causal = false;  // query i attends to keys 0 to i + key_length - query_length
  // Valid key lengths, (batch,) int64 in [0, key_length]. Later keys are masked. If undefined, no key is
  // masked.
  Tensor key_lengths = {};
  // Keys that a query attends to, besides the masks above. A limited window requires key_length =
  // query_length; its time is linear in the length.
  KeyWindow window = {};
  double scale = 0;                  // scale of the scores; 0: 1 / sqrt(dim)
  double dropout = 0;                // probability of setting an attention probability to zero
  RandomStream dropout_stream = {};  // index ((batch heads + head) query_length + i) key_length + j
  int64_t dropout_offset = 0;        // added to the index
};

// Returns softmax attention of q (batch, query_length, heads, dim), k (batch, key_length, heads, dim) and v
// (batch, key_length, heads, value_dim), all float32, float64 or bfloat16; result (batch, query_length,
// heads, value_dim), contiguous. Inputs are read through their strides and are copied only if the last
// dimension is not contiguous. The result of a query without visible keys is 0. The op processes blocks with
// an online softmax (Dao et al. 2022, "FlashAttention"), so memory is linear in the lengths; backward()
// recomputes the scores. Throws ShapeError.
Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const SoftmaxAttentionOptions& options = {});

// Computes softmax_attention() by a composition of differentiable ops, with all scores in memory. Serves as
// the reference in tests and as the baseline of "Transformers are RNNs".
Tensor plain_softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               const SoftmaxAttentionOptions& options = {});

// Keys and values of the previous tokens, a ring with memory for `capacity` tokens. If the capacity is at
// least window.span(), the cache takes any number of tokens.
struct KeyValueCache {
  Tensor keys;    // (batch, capacity, heads, dim), contiguous
  Tensor values;  // (batch, capacity, heads, value_dim), contiguous
  int64_t length = 0;
  KeyWindow window = {};
};

// Processes one token of the causal form: appends k and v to the cache, then reads the result for q. q, k
// (batch, heads, dim), v and out (batch, heads, value_dim), last dimensions contiguous. scale 0 means 1 /
// sqrt(dim). The call is not recorded and allocates no memory. Throws ShapeError for mismatched shapes and
// for a full cache.
void softmax_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache,
                            const Tensor& out, double scale = 0);

}  // namespace tapeformer
