// Shared functions of the attention ops: checks of inputs, and access through strides.
#pragma once

#include "autograd/tape.h"
#include "ops/attention_result.h"
#include "ops/kernels/attention.h"

namespace tapeformer {

// What the inputs of an attention op may be, beyond equal numbers of heads and equal dtypes.
struct AttentionInputRules {
  bool grouped_heads = false;  // the number of heads of k and v can be a divisor of the number of heads of q
  bool bfloat16_result = false;  // the result of a step can be bfloat16 if q is float32
};

// Throws ShapeError unless q is (batch, query_length, heads, dim), k is (batch, key_length, heads, dim), v is
// (batch, key_length, heads, value_dim), and dim and value_dim are positive. Also throws ShapeError if the
// dtypes or the devices of the tensors differ.
void check_attention_inputs(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionInputRules& rules = {});
// Throws ShapeError unless q and k are (batch, heads, dim), v and `out` are (batch, heads, value_dim), and
// the last dimension of each tensor is positive and contiguous. All tensors must have the same dtype.
void check_attention_step(const char* op, const Tensor& q, const Tensor& k, const Tensor& v,
                          const Tensor& out, const AttentionInputRules& rules = {});
// Throws ShapeError unless the tensors are on the device of q. `name` is the subject of the message.
void check_on_device_of_q(const char* op, const char* name, std::initializer_list<const Tensor*> tensors,
                          const Tensor& q);
// Returns key_lengths as a contiguous int64 tensor (batch,) on the device of the keys, or an undefined tensor
// if key_lengths is undefined. key_lengths must be on the CPU or on the device of the keys. Values on the CPU
// must be in [0, key_length]. Values on a CUDA device are not checked, because reading the values would
// require synchronisation; kernels clamp values that are out of range.
Tensor prepare_key_lengths(const char* op, const Tensor& key_lengths, const Tensor& keys);

// Returns true also for a last dimension of size 1 with any stride, and for a tensor without elements.
bool last_dimension_is_contiguous(const Tensor& x);

// Returns x if its last dimension is contiguous, otherwise a contiguous copy of x. The copy is recorded on
// the tape, so that gradients are propagated to x.
Tensor make_features_contiguous(const Tensor& x);

// Returns the data and strides of x (batch, length, heads, dim). x may also be (batch, heads, dim), which is
// one token.
template <class T>
AttentionRows<T> get_attention_rows(const Tensor& x) {
  const Shape& strides = x.strides();
  T* const data = x.data<std::remove_const_t<T>>();
  if (x.rank() == 3) return {data, strides[0], 0, strides[1]};
  return {data, strides[0], strides[1], strides[2]};
}

template <class AttentionShape>
AttentionShape make_attention_shape(const Tensor& q, const Tensor& k, const Tensor& v) {
  AttentionShape shape;
  shape.batch = q.size(0);
  shape.query_length = q.size(1);
  shape.key_length = k.size(1);
  shape.heads = q.size(2);
  shape.dim = q.size(3);
  shape.value_dim = v.size(3);
  return shape;
}

// Returns a copy of `shape` in which the member key_lengths points to the data of the tensor. If the tensor
// is undefined, the pointer is null. Call this function inside dispatch_float_or_double(), because
// Tensor::data() throws if the tensor is not on current_device.
template <class AttentionShape>
AttentionShape with_key_lengths(AttentionShape shape, const Tensor& key_lengths) {
  shape.key_lengths = key_lengths.defined() ? key_lengths.data<int64_t>() : nullptr;
  return shape;
}

// Returns the uninitialised result of an attention op, (batch, query_length, heads, value_dim) in the dtype
// of q.
Tensor allocate_attention_result(const Tensor& q, const Tensor& v);
// Returns an uninitialised tensor (batch, heads, query_length) in the compute dtype. The forward kernel
// writes one number per query and head, such as a log-sum-exp, which the backward kernel reads.
Tensor allocate_query_statistics(const Tensor& q);

// Check tensors of the caller for the functions of ops/attention_result.h. If `statistics_shape` is empty, it
// is (batch, heads, query_length).
void check_result_tensor(const char* op, const char* name, const Tensor& x, const Shape& shape, DType dtype);
void check_attention_result(const char* op, const AttentionResult& result, const Tensor& q, const Tensor& v,
                            const Shape& statistics_shape = {});
void check_gradient(const char* op, const Tensor& gradient, const Tensor& out);
void check_gradients(const char* op, const Gradients& gradients, std::initializer_list<const Tensor*> inputs);

// Returns uninitialised gradients of q, k and v. If an element of `needs` is false, the corresponding
// gradient is undefined. If q, k and v are the results of one unbind() and all gradients are needed, the
// gradients are slices of one tensor. The backward pass of unbind() then needs no copy.
Gradients allocate_attention_gradients(NeededGradients needs, const Tensor& q, const Tensor& k,
                                       const Tensor& v);
// Returns the data and strides of the gradients of q, k and v. For an undefined gradient, the data is null.
template <class T>
AttentionGradients<T> get_gradient_rows(const Gradients& gradients) {
  const auto target = [&](size_t i) {
    return gradients[i].defined() ? get_attention_rows<T>(gradients[i]) : AttentionRows<T>{};
  };
  return {target(0), target(1), target(2)};
}

}  // namespace tapeformer
