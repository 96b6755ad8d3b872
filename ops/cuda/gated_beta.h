// The write strengths β of gated linear attention. The scans of ops/cuda/gated_linear_attention.cu have no β:
// they get β v for v and β e for the erase keys, rounded to the dtype of v. The gradients of β follow from
// the gradients of these products.
#pragma once

#include "ops/cuda/warp_row.h"
#include "ops/kernels/gated_linear_attention.h"

namespace tapeformer::cuda {

// Each warp processes the rows of one token and head at a time. β is `in.beta`.
template <class S>
__global__ void scale_by_beta_kernel(GatedLinearAttentionShape s, GatedLinearAttentionInputs<S> in, S* v,
                                     S* erase) {
  for (int64_t row = first_warp_row(); row < s.batch * s.length * s.heads; row += warp_row_stride()) {
    const int64_t n = row / s.heads / s.length, t = row / s.heads % s.length, h = row % s.heads;
    const Compute<S> beta = *in.beta.row(n, t, h);
    const auto scale = [&](const AttentionRows<const S>& x, int64_t dim, S* target) {
      for (int64_t i = threadIdx.x % kWarpSize; i < dim; i += kWarpSize)
        target[row * dim + i] = convert_element<S>(beta * convert_element<Compute<S>>(x.row(n, t, h)[i]));
    };
    scale(in.v, s.value_dim, v);
    if (in.erase.data) scale(in.erase, s.dim, erase);
  }
}

// Computes dβ = v . x + e . y, and replaces x by β x and y by β y, where x is the gradient of β v in gv, and
// y the gradient of β e in gerase. gerase and gbeta can be null.
template <class S>
__global__ void finish_beta_kernel(GatedLinearAttentionShape s, GatedLinearAttentionInputs<S> in,
                                   GatedLinearAttentionGradients<S> gradients) {
  using T = Compute<S>;
  for (int64_t row = first_warp_row(); row < s.batch * s.length * s.heads; row += warp_row_stride()) {
    const int64_t n = row / s.heads / s.length, t = row / s.heads % s.length, h = row % s.heads;
    const T beta = *in.beta.row(n, t, h);
    T dot = 0;
    const auto finish = [&](const AttentionRows<const S>& x, int64_t dim, const AttentionRows<S>& gradient) {
      for (int64_t i = threadIdx.x % kWarpSize; i < dim; i += kWarpSize) {
        S& element = gradient.row(n, t, h)[i];
        const T g = convert_element<T>(element);
        dot += g * convert_element<T>(x.row(n, t, h)[i]);
        element = convert_element<S>(beta * g);
      }
    };
    finish(in.v, s.value_dim, gradients.gv);
    if (gradients.gerase.data) finish(in.erase, s.dim, gradients.gerase);
    const T total = warp_reduce<Plus>(dot);
    if (gradients.gbeta.data && threadIdx.x % kWarpSize == 0) *gradients.gbeta.row(n, t, h) = total;
  }
}

// Owns β v and β e. Without β, inputs() returns the given inputs.
template <class S>
class ScaledInputs {
 public:
  ScaledInputs(const GatedLinearAttentionShape& s, const GatedLinearAttentionInputs<S>& inputs)
      : inputs_(inputs),
        v_(inputs.beta.data ? count_rows(s) * s.value_dim : 0),
        erase_(inputs.beta.data && inputs.erase.data ? count_rows(s) * s.dim : 0) {
    if (!inputs.beta.data) return;
    launch(scale_by_beta_kernel<S>, make_warp_row_launch(count_rows(s)), s, inputs, v_.data(), erase_.data());
    inputs_.v = make_contiguous_rows<const S>(v_.data(), s.length, s.heads, s.value_dim);
    if (inputs.erase.data)
      inputs_.erase = make_contiguous_rows<const S>(erase_.data(), s.length, s.heads, s.dim);
  }
  const GatedLinearAttentionInputs<S>& inputs() const { return inputs_; }

 private:
  static int64_t count_rows(const GatedLinearAttentionShape& s) { return s.batch * s.length * s.heads; }

  GatedLinearAttentionInputs<S> inputs_;
  Scratch<S> v_, erase_;
};

}  // namespace tapeformer::cuda
