// Random features of attention: FAVOR+ of "Rethinking Attention with Performers" (Choromanski et al. 2020,
// section 2). For rows w of a random projection with w ~ N(0, I), the features
//   phi(x)_i = exp(w_i . x' - |x'|^2 / 2) / sqrt(features), x' = x / dim^(1/4),
// satisfy E[phi(q) . phi(k)] = exp(q . k / sqrt(dim)). linear_attention() of these features approximates
// softmax attention.
#pragma once

#include "autograd/tape.h"
#include "core/random/rng.h"
#include "ops/kernels/random_features.h"

namespace tapeformer {

struct RandomProjectionOptions {
  int64_t features = 256;
  bool orthogonal = true;  // orthogonal directions within each group of `dim` rows (section 2.4)
  // The second half of the rows is the negative of the first half (lemma 1, SM^hyp+).
  bool antithetic = false;
};

// Returns a random projection (features, dim), float64 on the CPU. Each row is distributed as N(0, I). The
// result depends only on the arguments. Throws ShapeError if an antithetic projection has an odd number of
// features.
Tensor make_random_projection(int64_t dim, const RandomProjectionOptions& options,
                              const RandomStream& stream);

// Returns the features (batch, length, heads, features) of x (batch, length, heads, dim). `projection`
// (features, dim) has rows w_i and the dtype of x (float32 or float64). With x' = x / dim^(1/4), feature i is
//   softmax_query: exp(w_i . x' - max_j(w_j . x'))
//   softmax_key: exp(w_i . x' - |x'|^2 / 2)
//   relu: max(w_i . x', 0) / sqrt(features) + offset (section 2.2, generalised attention).
// The maps softmax_query and softmax_key equal phi(x) except for factors that cancel in linear_attention().
// backward() treats max_j as a constant. Throws ShapeError for mismatched shapes and dtypes.
Tensor random_features(const Tensor& x, const Tensor& projection, RandomFeatureMap map, double offset = 0);

// Writes the features of one token, x (batch, heads, dim), to out (batch, heads, features). Both tensors are
// contiguous. The call is not recorded on the tape and allocates no memory. Throws ShapeError for mismatched
// shapes and dtypes.
void random_features_into(const Tensor& x, const Tensor& projection, RandomFeatureMap map, double offset,
                          const Tensor& out);

}  // namespace tapeformer
