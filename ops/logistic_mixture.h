// The discretised mixture of logistics: a distribution of one byte, or of one of `levels` values, from 3 K
// numbers. Salimans et al. 2017 (PixelCNN++), section 2.1, in the one-dimensional form of the experiments of
// "Transformers are RNNs".
#pragma once

#include "autograd/tape.h"
#include "core/rng.h"

namespace tapeformer {

struct LogisticMixtureOptions {
  int64_t levels = 256;  // targets are 0 … levels - 1, mapped to [-1, 1]
  Tensor row_mask = {};  // (rows,) uint8, 1 where the row counts; undefined: all rows
};

// Mean negative log-likelihood in nats over the rows that count; 0 when none does. parameters (rows, 3 K)
// floating: K logits, K means, K log-scales (clamped at -7); targets (rows,) integer. With y the target in
// [-1, 1], h = 1 / (levels - 1) and s = exp(log-scale), component k gives y the probability sigmoid((y + h -
// mean) / s) - sigmoid((y - h - mean) / s), open to the outside at the lowest and highest level, and the
// density at y times 2 h where that difference is at most 1e-5.
Tensor logistic_mixture_loss(const Tensor& parameters, const Tensor& targets,
                             const LogisticMixtureOptions& options = {});

// The negative log-likelihood of every row, (rows,), in the parameters' dtype; not recorded.
Tensor logistic_mixture_nll(const Tensor& parameters, const Tensor& targets, int64_t levels = 256);

// Which scale a sample is drawn with: the released experiments use elu(log-scale) + 1.0001, not
// exp(log-scale).
enum class SamplingScale { elu, exp };

// Draws one byte a row into out (rows,) uint8: a component, then mean + scale (log u - log(1 - u)), rounded
// to a level. Row i uses elements 2 (first + i) and 2 (first + i) + 1 of the stream. No recording, no
// allocation.
void sample_logistic_mixture(const Tensor& parameters, const RandomStream& stream, int64_t first,
                             const Tensor& out, SamplingScale scale = SamplingScale::elu);

}  // namespace tapeformer
