// Discretised mixture of logistics (ops/logistic_mixture.h) on parameters (rows, 3 * mixtures).
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/rng.h"

namespace tapeformer {

inline constexpr int64_t kMaxMixtures = 64;

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes nll (rows,), the negative log-likelihoods of targets in [0, levels). A target out of range,
    // which can occur only on CUDA, gives NaN. If `gradient` (rows, 3 * mixtures) is not null, it receives
    // the derivatives of nll multiplied by scale[row]. If `scale` is null, all elements are 1.
    template <class T>
    void logistic_mixture(Backend, int64_t rows, int64_t mixtures, int64_t levels, const T* parameters,
                          const int64_t* targets, const T* scale, T* nll, T* gradient);

    // Samples out (rows,) as ops/logistic_mixture.h describes. elu_scale selects SamplingScale::elu.
    template <class T>
    void sample_logistic_mixture(Backend, int64_t rows, int64_t mixtures, const T* parameters,
                                 const RandomStream& stream, int64_t first, bool elu_scale, uint8_t* out);

)

}  // namespace tapeformer
