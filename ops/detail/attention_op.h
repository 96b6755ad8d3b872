// Attention as an op: the part of linear and softmax attention around their kernels.
#pragma once

#include "autograd/tape.h"
#include "core/device.h"
#include "ops/detail/attention_inputs.h"

namespace tapeformer {

// The kernels of an op, each called with raw pointers on its machine:
// forward(shape, q, k, v, out, sums) and backward(shape, q, k, v, out, sums, g, AttentionGradients).
template <class CpuForward, class CudaForward, class CpuBackward, class CudaBackward>
struct AttentionKernels {
  CpuForward cpu_forward;
  CudaForward cuda_forward;
  CpuBackward cpu_backward;
  CudaBackward cuda_backward;
};

// Inputs that check_attention_inputs has seen, sizes that fit them, and checked lengths; result (batch,
// query_length, heads, value_dim), recorded. `sums` is (batch, heads, query_length), what forward leaves for
// backward.
template <class Shape, class Kernels>
Tensor attention_op(const char* op, const Tensor& query, const Tensor& key, const Tensor& value,
                    const Shape& sizes, const Tensor& key_lengths, const Kernels& kernels) {
  // The shape as the kernel gets it, on the machine that has the lengths.
  const auto shape = [sizes, key_lengths] {
    Shape with_lengths = sizes;
    with_lengths.key_lengths = key_lengths.defined() ? key_lengths.data<int64_t>() : nullptr;
    return with_lengths;
  };
  const Tensor q = contiguous_features(query), k = contiguous_features(key), v = contiguous_features(value);
  const Tensor out = Tensor::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, q.dtype(), q.device());
  const Tensor sums = Tensor::empty({q.size(0), q.size(2), q.size(1)}, compute_dtype(q.dtype()), q.device());
  visit_stored(op, q.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const auto run = [&](const auto& kernel) {
      kernel(shape(), attention_rows<const T>(q), attention_rows<const T>(k), attention_rows<const T>(v),
             out.data<T>(), sums.data<Compute<T>>());
    };
    on_device_of<T>(
        q.device(), op, [&] { run(kernels.cpu_forward); }, [&] { run(kernels.cuda_forward); });
  });
  return record(
      op, out, {&q, &k, &v},
      [op, shape, sums, kernels, q = detach(q), k = detach(k), v = detach(v), out = detach(out)](
          const Tensor& gradient, Needs needs) {
        const Tensor g = contiguous_features(gradient);
        Gradients gradients(3);
        const Tensor* const inputs[] = {&q, &k, &v};
        for (int i = 0; i < 3; ++i)
          if (needs[i])
            gradients[static_cast<size_t>(i)] =
                Tensor::empty(inputs[i]->shape(), inputs[i]->dtype(), inputs[i]->device());
        visit_stored(op, q.dtype(), [&](auto tag) {
          using T = decltype(tag);
          const auto target = [&](size_t i) {
            return gradients[i].defined() ? gradients[i].template data<T>() : nullptr;
          };
          const auto run = [&](const auto& kernel) {
            kernel(shape(), attention_rows<const T>(q), attention_rows<const T>(k),
                   attention_rows<const T>(v), out.data<T>(), sums.data<Compute<T>>(),
                   attention_rows<const T>(g), AttentionGradients<T>{target(0), target(1), target(2)});
          };
          on_device_of<T>(
              q.device(), op, [&] { run(kernels.cpu_backward); }, [&] { run(kernels.cuda_backward); });
        });
        return gradients;
      });
}

}  // namespace tapeformer
