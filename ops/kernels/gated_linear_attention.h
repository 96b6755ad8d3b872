// Kernels of gated linear attention (ops/gated_linear_attention.h). For each head, the state S (dim,
// value_dim) of a sequence is updated for each token t:
//   S = (I - β_t k_t e_tᵀ) Diag(exp(g_t)) S + β_t k_t v_tᵀ,   out_t = Sᵀ q_t.
// The update equals the update of a sum of outer products, S = Diag(exp(g_t)) S + k_t u_tᵀ, for
//   u_t = β_t (v_t - (Diag(exp(g_t)) S)ᵀ e_t),
// the value that token t writes.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

struct GatedLinearAttentionShape {
  int64_t batch = 0, length = 0, heads = 0, dim = 0, value_dim = 0;
  // Number of log decays per token and head: `dim`, or 1 for a decay that all channels share.
  int64_t decay_dim = 1;
  bool reverse = false;  // tokens are processed from the last valid token to the first
  // Numbers of valid tokens (batch,). Later tokens do not change the state, and their results and gradients
  // are 0. If null, all tokens are valid.
  const int64_t* lengths = nullptr;
};

// Decays and states have the compute type of T.
template <class T>
struct GatedLinearAttentionInputs {
  AttentionRows<const T> q, k, v;
  AttentionRows<const T> erase = {};               // e; null: no token erases
  AttentionRows<const Compute<T>> log_decay = {};  // g, at most 0, can be -infinity; null: no decay
  AttentionRows<const Compute<T>> beta = {};       // β, one element per token and head; null: 1
  const Compute<T>* initial_state = nullptr;       // (batch, heads, dim, value_dim); null: 0
};

// Arrays that receive gradients. A kernel does not write an array whose pointer is null. gv must not be null
// if the tokens erase or have a β.
template <class T>
struct GatedLinearAttentionGradients {
  AttentionRows<T> gq = {}, gk = {}, gv = {}, gerase = {};
  AttentionRows<Compute<T>> glog_decay = {};  // one element per decay
  AttentionRows<Compute<T>> gbeta = {};       // one element per token and head
  Compute<T>* ginitial_state = nullptr;       // (batch, heads, dim, value_dim)
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, length, heads, value_dim) and final_state (batch, heads, dim, value_dim), both
    // contiguous. If `written` is not null, also stores u in this array, which has the shape of `out`.
    template <class T> void gated_linear_attention_forward(Backend, const GatedLinearAttentionShape& shape,
                                                           const GatedLinearAttentionInputs<T>& inputs,
                                                           T* out, T* written, Compute<T>* final_state);

    // Computes gradients from the gradient g of `out` and the gradient of final_state, which can be null.
    // `written` is the array u that the forward kernel stored. It is null if inputs.erase is null.
    template <class T>
    void gated_linear_attention_backward(Backend, const GatedLinearAttentionShape& shape,
                                         const GatedLinearAttentionInputs<T>& inputs, const T* written,
                                         AttentionRows<const T> g, const Compute<T>* gfinal_state,
                                         const GatedLinearAttentionGradients<T>& gradients);

    // Updates `state` (batch, heads, dim, value_dim) with one token and computes `out` from it. The inputs
    // and `out` have length 1, and inputs.initial_state is not used. O is T, or O is bfloat16 and T is float.
    template <class T, class O>
    void gated_linear_attention_step(Backend, const GatedLinearAttentionShape& shape,
                                     const GatedLinearAttentionInputs<T>& inputs, T* state,
                                     AttentionRows<O> out);)

}  // namespace tapeformer
