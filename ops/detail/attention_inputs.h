// What the attention ops share: checks of their inputs, and access to them through strides.
#pragma once

#include <vector>

#include "core/tensor.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// Throws ShapeError unless q (batch, query_length, heads, dim), k (batch, key_length, heads, dim), v (batch,
// key_length, heads, value_dim) fit each other in shape, dtype and device and dim, value_dim > 0.
void check_attention_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v);
// The same for one token: q, k (batch, heads, dim), v and out (batch, heads, value_dim), last dimensions
// contiguous.
void check_attention_step(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out);
// key_lengths as a contiguous (batch,) int64 tensor of values in [0, key_length] on the device; undefined
// stays undefined. Values that are on a device already are not looked at, because that would wait for it:
// kernels take what is outside for the nearer end.
Tensor checked_key_lengths(const char* op, const Tensor& key_lengths, int64_t batch, int64_t key_length,
                           Device device);

// The tensor itself when its last dimension is contiguous, else a contiguous copy (recorded).
Tensor contiguous_features(const Tensor& x);

// x (batch, length, heads, dim), or (batch, heads, dim) for one token.
template <class T>
AttentionRows<T> attention_rows(const Tensor& x) {
  const Shape& strides = x.strides();
  T* const data = x.data<std::remove_const_t<T>>();
  if (x.rank() == 3) return {data, strides[0], 0, strides[1]};
  return {data, strides[0], strides[1], strides[2]};
}

// The shape as a kernel takes it, with a pointer to key_lengths. Call this function inside dispatch, because
// it reads the address of the data.
template <class AttentionShape>
AttentionShape with_key_lengths(AttentionShape shape, const Tensor& key_lengths) {
  shape.key_lengths = key_lengths.defined() ? key_lengths.data<int64_t>() : nullptr;
  return shape;
}

// Returns the uninitialised result of an attention op, (batch, query_length, heads, value_dim) in the dtype
// of q.
Tensor attention_result(const Tensor& q, const Tensor& v);
// Returns an uninitialised number per query for the gradient, (batch, heads, query_length) in the compute
// dtype.
Tensor attention_sums(const Tensor& q);

// The data of the gradients of q, k and v; nullptr for undefined tensors.
template <class T>
AttentionGradients<T> gradient_targets(const std::vector<Tensor>& gradients) {
  const auto target = [&](size_t i) { return gradients[i].defined() ? gradients[i].data<T>() : nullptr; };
  return {target(0), target(1), target(2)};
}

}  // namespace tapeformer
