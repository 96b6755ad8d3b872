// The forward and backward passes of the attention ops as separate functions, for programs with another
// automatic differentiation. The functions do not use the tape: the caller keeps the inputs and the results
// of a forward pass for the backward pass. Equations, shapes, dtypes, options and errors are those of the op
// with the same name. An input is copied only if its last dimension is not contiguous.
//
// Results and gradients are tensors of the caller. Results and gradients of LSH attention are contiguous. The
// last dimension of other gradients is contiguous. The functions throw ShapeError for other shapes and
// dtypes. If a gradient is undefined, it is not computed; LSH attention computes both gradients.
#pragma once

#include "ops/gated_linear_attention.h"
#include "ops/linear_attention.h"
#include "ops/lsh_attention.h"
#include "ops/softmax_attention.h"

namespace tapeformer {

// The results of a forward pass that its backward pass needs.
struct AttentionResult {
  Tensor out;  // (batch, query_length, heads, value_dim), dtype of q
  // The log-sum-exps of the scores, or the inverse denominators of linear attention: (batch, heads,
  // query_length) in the compute dtype, which is float32 for bfloat16. LSH attention has (batch, heads,
  // rounds, length) with Combine::mean, where sequences of at most chunk_length positions have one round,
  // and (batch, heads, 1, length) with Combine::logsumexp.
  Tensor statistics;
};

// The gradients of q, k and v, and of the bias if options.bias is defined, are the elements of `gradients`.
// The gradient of the bias must be zero before the call. All patterns of keys are computed by one kernel, so
// dilated patterns are slower than with the op.
void softmax_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const SoftmaxAttentionOptions& options, const AttentionResult& result);
void softmax_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const SoftmaxAttentionOptions& options, const AttentionResult& result,
                                     const Tensor& gradient, const Gradients& gradients);

// The gradients of q, k and v are the elements of `gradients`.
void linear_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const LinearAttentionOptions& options, const AttentionResult& result);
void linear_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const LinearAttentionOptions& options, const AttentionResult& result,
                                    const Tensor& gradient, const Gradients& gradients);

// The gradients of q and v are the elements of `gradients`.
void lsh_attention_forward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                const LshOptions& options, const AttentionResult& result);
void lsh_attention_backward_into(const Tensor& q, const Tensor& v, const Tensor& buckets,
                                 const LshOptions& options, const AttentionResult& result,
                                 const Tensor& gradient, const Gradients& gradients);

// The results of gated_linear_attention_forward_into(). `written` contains the value that each token writes.
// It has the shape and dtype of `out`, and must be undefined if options.erase is undefined. It may also be
// undefined if there is no backward pass.
struct GatedAttentionResult {
  Tensor out;          // (batch, length, heads, value_dim), dtype of q
  Tensor final_state;  // (batch, heads, dim, value_dim), compute dtype
  Tensor written = {};
};

// Log decays are (batch, length, heads, 1) or (batch, length, heads, dim). options.boundaries must be
// undefined.
//
// The gradient of a result may be undefined, which means zero. The elements of `gradients` are the gradients
// of q, k, v, log_decay, erase, beta and initial_state, which have the shapes of these inputs. The gradient
// of an undefined input must be undefined.
void gated_linear_attention_forward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                         const GatedLinearAttentionOptions& options,
                                         const GatedAttentionResult& result);
void gated_linear_attention_backward_into(const Tensor& q, const Tensor& k, const Tensor& v,
                                          const GatedLinearAttentionOptions& options, const Tensor& written,
                                          const Tensor& gradient, const Tensor& state_gradient,
                                          const Gradients& gradients);

}  // namespace tapeformer
