// Addition of Gumbel noise to logits. The softmax of the noisy logits is a sample of the concrete
// distribution, which is a differentiable form of a random choice (Maddison et al. 2017, "The concrete
// distribution").
#pragma once

#include "autograd/tape.h"
#include "core/random/rng.h"

namespace tapeformer {

// Returns x + g with g_i = -log(-log(u_i)). The uniform random number u_i is element offset + i of the
// stream. The gradient of x is the gradient of the result. Throws ShapeError if x is not float32 or float64.
Tensor add_gumbel_noise(const Tensor& x, const RandomStream& stream, int64_t offset = 0);

}  // namespace tapeformer
