// Softmax attention (Vaswani et al. 2017, section 3.2): out_i = sum_j softmax_j(scale q_i . k_j + bias_ij)
// v_j.
#pragma once

#include "autograd/tape.h"
#include "ops/attention_result.h"
#include "ops/softmax_attention_options.h"

namespace tapeformer {

// Returns softmax attention as a contiguous tensor with shape (batch, query_length, heads, value_dim). `q`
// has shape (batch, query_length, heads, dim), `k` has shape (batch, key_length, key_heads, dim), and `v` has
// shape (batch, key_length, key_heads, value_dim), where key_heads is `heads` or a divisor of it: head h of
// the queries reads head h / (heads / key_heads) of the keys (Ainslie et al. 2023, "GQA"). The dtype of all
// tensors is float32, float64 or bfloat16. An input is copied only if its last dimension is not contiguous.
// If all keys of a query are masked, the result for the query is 0.
//
// The op computes an online softmax over blocks (Dao et al. 2022, "FlashAttention"), so the memory is linear
// in the lengths. backward() recomputes the scores. Throws ShapeError for mismatched shapes and dtypes.
Tensor softmax_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                         const SoftmaxAttentionOptions& options = {});

// The passes of softmax_attention(); see ops/attention_result.h. The gradients of q, k and v, and of the bias
// if options.bias is defined, are the elements of `gradients`. The gradient of the bias must be zero before
// the call. All patterns of keys are computed by one kernel, so dilated patterns are slower than with the op.
void softmax_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SoftmaxAttentionOptions& options, const AttentionResult& result);
void softmax_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const SoftmaxAttentionOptions& options, const AttentionResult& result,
                                     const Tensor& gradient, const Gradients& gradients);

// Returns the number of pairs of a query and a key in self-attention with these options, summed over the
// heads, for one sequence without masked keys.
double count_attended_pairs(const SoftmaxAttentionOptions& options, int64_t heads, int64_t length);

// Keys and values of the previous tokens, in a ring buffer for `capacity` tokens. If the capacity is at least
// pattern.max_causal_key_count(), the cache takes any number of tokens. The dtype is that of the tokens, or
// bfloat16 for float32 tokens, whose keys and values are then rounded.
struct KeyValueCache {
  Tensor keys;    // (batch, capacity, key_heads, dim); the last dimension is contiguous
  Tensor values;  // (batch, capacity, key_heads, value_dim); likewise
  int64_t length = 0;
  KeyPattern pattern = {};
  Tensor key_blocks = {};  // see SoftmaxAttentionOptions
};

struct KeyValueCacheSize {
  int64_t batch, capacity, key_heads, dim, value_dim;
};
// Returns an empty cache with uninitialised memory. The heads of a token are adjacent in memory if `pattern`
// selects scattered tokens. Otherwise, the tokens of a head are adjacent, because a step reads head by head.
KeyValueCache make_key_value_cache(const KeyValueCacheSize& size, DType dtype, Device device = kCpu,
                                   const KeyPattern& pattern = {}, const Tensor& key_blocks = {});

// Appends tokens, k (batch, length, key_heads, dim) and v (batch, length, key_heads, value_dim), to the
// cache. The call is not recorded. Throws ShapeError for mismatched shapes and for a full cache.
void append_tokens(const Tensor& k, const Tensor& v, KeyValueCache& cache);

// Processes one token of the causal form: appends k and v to the cache, then writes the attention of q to
// `out`. q is (batch, heads, dim), k is (batch, key_heads, dim), v is (batch, key_heads, value_dim), and out
// is (batch, heads, value_dim). The last dimensions are contiguous. A scale of 0 means 1 / sqrt(dim). The
// call is not recorded and allocates no memory. Throws ShapeError for mismatched shapes and for a full cache.
void softmax_attention_step(const Tensor& q, const Tensor& k, const Tensor& v, KeyValueCache& cache,
                            const Tensor& out, double scale = 0);

}  // namespace tapeformer
