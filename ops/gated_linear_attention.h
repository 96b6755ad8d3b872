// Linear attention that forgets. For each head, a state S (dim, value_dim) is updated for each token t:
//   S_t = (I - β_t k_t e_tᵀ) Diag(exp(g_t)) S_{t-1} + β_t k_t v_tᵀ,   out_t = S_tᵀ q_t.
// g is the log decay, at most 0, and β the write strength. e is the erase key: before token t writes, it
// removes what the decayed state returns for e_t. The delta rule is e = k. The models of this family are:
//   RetNet (Sun et al. 2023), Lightning Attention (Qin et al. 2024)   fixed g, no e
//   Mamba-2 (Dao and Gu 2024)                                         one g per head, no e
//   GLA (Yang et al. 2023)                                            one g per channel, no e
//   DeltaNet (Schlag et al. 2021, Yang et al. 2024)                   no g, e = k
//   Gated DeltaNet (Yang et al. 2024)                                 one g per head, e = k
//   Kimi Delta Attention (Kimi Team 2025)                             one g per channel, e = k
// Results have no denominators; `q` contains the scale, such as 1/√dim.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct GatedLinearAttentionOptions {
  // Log decays g, at most 0: (batch, length, heads), (batch, length, heads, dim), or (heads,) for a decay
  // that is the same for all tokens. -infinity clears the state before the token. Undefined: 0.
  Tensor log_decay = {};
  Tensor erase = {};          // e, (batch, length, heads, dim). Undefined: 0.
  Tensor beta = {};           // β, (batch, length, heads). Undefined: 1.
  Tensor initial_state = {};  // S before the first token, (batch, heads, dim, value_dim). Undefined: 0.
  // Numbers of valid tokens, (batch,) int64 in [0, length]. Later tokens do not change the state, and their
  // results are 0. Undefined: all tokens are valid.
  Tensor lengths = {};
  bool reverse = false;  // process the tokens from the last valid token to the first
  // Starts of sequences within an example, (batch, length), integers 0 and 1. If element t is 1, the state is
  // cleared before token t or, with `reverse`, before token t - 1. Undefined: no starts.
  Tensor boundaries = {};
};

struct GatedLinearAttentionResult {
  Tensor out;          // (batch, length, heads, value_dim), contiguous
  Tensor final_state;  // (batch, heads, dim, value_dim)
};

// q and k are (batch, length, heads, dim) and v is (batch, length, heads, value_dim), all float32, float64 or
// bfloat16; `erase` has the same dtype. g, β and states have the compute dtype, which is float32 for
// bfloat16. Gradients flow to all of these tensors and from both results.
//
// The tape keeps the inputs and, if `erase` is defined, one tensor like `out`. backward() computes the states
// again. Throws ShapeError for mismatched shapes and dtypes.
GatedLinearAttentionResult gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                                  const GatedLinearAttentionOptions& options = {});

// The results of gated_linear_attention_forward_into(). `written` contains the value that each token writes.
// It has the shape and dtype of `out`, and must be undefined if options.erase is undefined. It may also be
// undefined if there is no backward pass.
struct GatedAttentionResult {
  Tensor out;          // (batch, length, heads, value_dim), dtype of q
  Tensor final_state;  // (batch, heads, dim, value_dim), compute dtype
  Tensor written = {};
};

// The passes of gated_linear_attention(); see ops/attention_result.h. Log decays are (batch, length, heads,
// 1) or (batch, length, heads, dim). options.boundaries must be undefined.
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

// The inputs of one token beside q, k and v: log decays (batch, heads), (batch, heads, dim) or (heads,),
// erase keys (batch, heads, dim) and β (batch, heads). All can be undefined.
struct GatedTokenOptions {
  Tensor log_decay = {}, erase = {}, beta = {};
};

// Processes one token: updates `state` (batch, heads, dim, value_dim) and writes `out`. q and k are (batch,
// heads, dim), v and `out` are (batch, heads, value_dim). All tensors are float32 or float64, and `out` may
// also be bfloat16 if the other tensors are float32. The call is not recorded and allocates no memory. Throws
// ShapeError for mismatched shapes and dtypes.
void gated_linear_attention_step(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const GatedTokenOptions& options, const Tensor& state, const Tensor& out);

}  // namespace tapeformer
