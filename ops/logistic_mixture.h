// The discretised mixture of logistics (Salimans et al. 2017, "PixelCNN++", section 2.1). This distribution
// over `levels` values, such as bytes, has three parameters per component. PixelCNN++ uses a joint
// distribution of the three channels of a pixel. This file implements the distribution of a single value, as
// in the image experiments of "Transformers are RNNs".
#pragma once

#include "autograd/tape.h"
#include "core/random/rng.h"

namespace tapeformer {

struct LogisticMixtureOptions {
  int64_t levels = 256;  // targets are 0 … levels - 1, mapped to [-1, 1]
  Tensor row_mask = {};  // (rows,) uint8, 1 for rows that the mean includes; undefined: all rows
};

// Returns the mean negative log-likelihood in nats over the rows selected by row_mask, or 0 if no row is
// selected. `parameters` (rows, 3 K), float32 or float64, contains K logits, K means and K log-scales.
// Log-scales below -7 are replaced by -7. `targets` (rows,) contains integers in [0, levels).
//
// Let y be the target mapped to [-1, 1], h = 1 / (levels - 1) and s = exp(log-scale). The probability of y
// under a component is sigmoid((y + h - mean) / s) - sigmoid((y - h - mean) / s). The second sigmoid is 0 for
// the lowest level, and the first sigmoid is 1 for the highest level. For all other levels, a probability of
// at most 1e-5 is replaced by 2 h times the density at y.
Tensor logistic_mixture_loss(const Tensor& parameters, const Tensor& targets,
                             const LogisticMixtureOptions& options = {});

// Returns the negative log-likelihood of each row, (rows,), in the dtype of the parameters. The call is not
// recorded.
Tensor logistic_mixture_nll(const Tensor& parameters, const Tensor& targets, int64_t levels = 256);

// Selects how sample_logistic_mixture() computes the scale of a component from its log-scale. `exp` selects
// exp(log-scale), where log-scales below -7 are replaced by -7. `elu` selects elu(log-scale) + 1.0001, as in
// the released code of "Transformers are RNNs".
enum class SamplingScale { elu, exp };

// Draws one byte per row into out (rows,) uint8. For each row, draws a component of the mixture. Then
// computes mean + scale (log u - log(1 - u)) with a uniform random number u, and rounds the result to one of
// 256 levels. Row i uses elements 2 (first + i) and 2 (first + i) + 1 of the stream. The call is not recorded
// and allocates no memory.
void sample_logistic_mixture(const Tensor& parameters, const RandomStream& stream, int64_t first,
                             const Tensor& out, SamplingScale scale = SamplingScale::elu);

}  // namespace tapeformer
