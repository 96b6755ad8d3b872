// Types that the attention kernels share.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace tapeformer {

// A (batch, length, heads, dim) tensor whose last dimension is contiguous. Strides are in elements.
template <class T>
struct AttentionRows {
  T* data = nullptr;
  int64_t batch_stride = 0, length_stride = 0, head_stride = 0;

  TAPEFORMER_HOST_DEVICE T* row(int64_t batch, int64_t position, int64_t head) const {
    return data + batch * batch_stride + position * length_stride + head * head_stride;
  }
};

// Targets of the gradients of q, k and v. If the data of a target is null, its gradient is not computed.
template <class T>
struct AttentionGradients {
  AttentionRows<T> gq = {}, gk = {}, gv = {};
};

// Returns the valid length of example `index`: lengths[index] clamped to [0, length], or `length` if
// `lengths` is null. Lengths on a CUDA device are not checked elsewhere.
TAPEFORMER_HOST_DEVICE inline int64_t valid_length(const int64_t* lengths, int64_t index, int64_t length) {
  if (!lengths) return length;
  const int64_t value = lengths[index];
  return value < 0 ? 0 : value < length ? value : length;
}

// Returns the rows of a contiguous tensor.
template <class T>
TAPEFORMER_HOST_DEVICE AttentionRows<T> contiguous_rows(T* data, int64_t length, int64_t heads, int64_t dim) {
  return {data, length * heads * dim, heads * dim, dim};
}

}  // namespace tapeformer
