// Kernel that adds Gumbel noise (ops/gumbel.h).
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/random/rng.h"

namespace tapeformer {

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y_i = x_i - log(-log(u_i)) for n elements, where u_i = stream.uniform(offset + i).
    template <class T>
    void add_gumbel_noise(Backend, const T* x, const RandomStream& stream, int64_t offset, T* y, int64_t n);

)

}  // namespace tapeformer
