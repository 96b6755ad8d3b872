// Kernels of the discretised mixture of logistics (ops/logistic_mixture.h). The parameters of the mixtures
// are (rows, 3 * mixtures): the logits, means and log-scales of the components.
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/random/rng.h"

namespace tapeformer {

inline constexpr int64_t kMaxMixtures = 64;

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes nll (rows,), the negative log-likelihoods of targets (rows,) in [0, levels). On CUDA, the
    // result for a target out of range is NaN. If `gradient` (rows, 3 * mixtures) is not null, also writes
    // the derivatives of nll, multiplied by scale[row], to `gradient`. If `scale` is null, all scales are 1.
    template <class T>
    void compute_logistic_mixture_nll(Backend, int64_t rows, int64_t mixtures, int64_t levels,
                                      const T* parameters, const int64_t* targets, const T* scale, T* nll,
                                      T* gradient);

    // Samples each element of out (rows,) from the mixture of its row. Row r uses two uniform numbers:
    // elements 2 * i and 2 * i + 1 of the stream, where i = first_row + r. If use_elu_scale is false, the
    // scale of a component is exp(max(log-scale, -7)). If use_elu_scale is true, the scale is elu(log-scale)
    // + 1.0001.
    template <class T> void sample_logistic_mixture(Backend, int64_t rows, int64_t mixtures,
                                                    const T* parameters, const RandomStream& stream,
                                                    int64_t first_row, bool use_elu_scale, uint8_t* out);

)

}  // namespace tapeformer
