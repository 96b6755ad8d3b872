// Functions that record attention ops with queries, keys and values on the tape.
#pragma once

#include <utility>

#include "autograd/tape.h"
#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"

namespace tapeformer {

// Arguments of the backward kernel of an attention op. g is the gradient of out.
template <class T>
struct AttentionBackwardArguments {
  AttentionRows<const T> q, k, v;
  const T* out;
  AttentionRows<const T> g;
  AttentionGradients<T> gradients;
};

// Records `out` on the tape as the result of an attention op with the inputs q, k and v. Returns `out`.
// `backward` is a function with the parameters (Backend, AttentionBackwardArguments<T>) that computes the
// gradients.
template <class F>
Tensor record_attention(const char* op, const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                        F&& backward) {
  return record(op, out, {&q, &k, &v},
                [op, backward = std::forward<F>(backward), q = detach(q), k = detach(k), v = detach(v),
                 out = detach(out)](const Tensor& gradient, NeededGradients needs) {
                  const Tensor g = make_features_contiguous(gradient);
                  const Gradients gradients = allocate_attention_gradients(needs, q, k, v);
                  dispatch_floating(op, q, [&]<class T>(auto backend) {
                    backward(backend, AttentionBackwardArguments<T>{
                                          get_attention_rows<const T>(q), get_attention_rows<const T>(k),
                                          get_attention_rows<const T>(v), out.data<T>(),
                                          get_attention_rows<const T>(g), get_gradient_rows<T>(gradients)});
                  });
                  return gradients;
                });
}

}  // namespace tapeformer
