// Kernels that fill, copy and add tensors with any strides.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

class Tensor;

TAPEFORMER_FOR_EACH_BACKEND(

    void fill_zero(Backend, void* data, int64_t bytes);
    // Copies `from` to `to` and converts the dtype. Both tensors have the same shape.
    void copy_elements(Backend, const Tensor& to, const Tensor& from);
    void fill_elements(Backend, const Tensor& to, double value);
    // Computes to += scale * from. Both tensors have the same shape and floating dtype.
    void add_elements(Backend, const Tensor& to, const Tensor& from, double scale);

)

}  // namespace tapeformer
