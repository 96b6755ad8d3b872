// What the attention kernels share: how they read (batch, length, heads, dim) tensors.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/host_device.h"

namespace tapeformer {

// A (batch, length, heads, dim) tensor whose last dimension is contiguous. Strides in elements.
template <class T>
struct AttentionRows {
  T* data = nullptr;
  int64_t batch_stride = 0, length_stride = 0, head_stride = 0;

  TAPEFORMER_HOST_DEVICE T* row(int64_t batch, int64_t position, int64_t head) const {
    return data + batch * batch_stride + position * length_stride + head * head_stride;
  }
};

// Targets of the gradients: gq, gk and gv, contiguous in the shapes of q, k and v; nullptr where not
// wanted.
template <class T>
struct AttentionGradients {
  T* gq = nullptr;
  T* gk = nullptr;
  T* gv = nullptr;
};

// The rows of a contiguous tensor.
template <class T>
TAPEFORMER_HOST_DEVICE AttentionRows<T> contiguous_rows(T* data, int64_t length, int64_t heads, int64_t dim) {
  return {data, length * heads * dim, heads * dim, dim};
}

}  // namespace tapeformer
