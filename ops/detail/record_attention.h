// Recording of attention ops with queries, keys and values.
#pragma once

#include <utility>

#include "autograd/tape.h"
#include "core/dispatch.h"
#include "ops/detail/attention_inputs.h"
#include "ops/detail/tensors.h"

namespace tapeformer {

// Arguments of the backward kernel of an attention op. g is the gradient of out.
template <class T>
struct AttentionBackward {
  AttentionRows<const T> q, k, v;
  const T* out;
  AttentionRows<const T> g;
  AttentionGradients<T> gradients;
};

// Records `out` as the result of an attention op with the inputs q, k and v. Returns `out`. backward(backend,
// AttentionBackward<T>) calls the backward kernel.
template <class F>
Tensor record_attention(const char* op, const Tensor& out, const Tensor& q, const Tensor& k, const Tensor& v,
                        F&& backward) {
  return record(
      op, out, {&q, &k, &v},
      [op, backward = std::forward<F>(backward), q = detach(q), k = detach(k), v = detach(v),
       out = detach(out)](const Tensor& gradient, Needs needs) {
        const Tensor g = contiguous_features(gradient);
        const Gradients gradients = attention_gradients(needs, q, k, v);
        dispatch_stored(op, q, [&]<class T>(auto backend) {
          backward(backend, AttentionBackward<T>{attention_rows<const T>(q), attention_rows<const T>(k),
                                                 attention_rows<const T>(v), out.data<T>(),
                                                 attention_rows<const T>(g), gradient_targets<T>(gradients)});
        });
        return gradients;
      });
}

}  // namespace tapeformer
