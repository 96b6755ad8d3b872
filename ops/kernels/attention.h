// Types and functions that all attention kernels use.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/base/host_device.h"

namespace tapeformer {

// A (batch, length, heads, dim) tensor whose last dimension is contiguous. Strides are in elements.
template <class T>
struct AttentionRows {
  T* data = nullptr;
  int64_t batch_stride = 0, length_stride = 0, head_stride = 0;

  // Returns the address of the `dim` elements of a position and head.
  TAPEFORMER_HOST_DEVICE T* row(int64_t batch, int64_t position, int64_t head) const {
    return data + batch * batch_stride + position * length_stride + head * head_stride;
  }
};

// Tensors that receive the gradients of q, k and v. If `data` of a tensor is null, the kernel does not
// compute this gradient.
template <class T>
struct AttentionGradients {
  AttentionRows<T> gq = {}, gk = {}, gv = {};
};

// Returns the valid length of an example: lengths[example] clamped to [0, length], or `length` if `lengths`
// is null. The function clamps because ops cannot check lengths that are on a CUDA device.
TAPEFORMER_HOST_DEVICE inline int64_t get_valid_length(const int64_t* lengths, int64_t example,
                                                       int64_t length) {
  if (!lengths) return length;
  const int64_t value = lengths[example];
  return value < 0 ? 0 : value < length ? value : length;
}

template <class T>
TAPEFORMER_HOST_DEVICE AttentionRows<T> make_contiguous_rows(T* data, int64_t length, int64_t heads,
                                                             int64_t dim) {
  return {data, length * heads * dim, heads * dim, dim};
}

}  // namespace tapeformer
