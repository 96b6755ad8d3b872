// Linear attention in plain loops, with its gradient. Tests compare linear_attention() with this reference.
#pragma once

#include <algorithm>
#include <cmath>

#include "ops/linear_attention.h"
#include "ops/reference/rows.h"
#include "ops/view.h"

namespace tapeformer {

// Returns phi(x) and the derivative of phi at x.
inline std::pair<double, double> apply_feature_map_reference(FeatureMap map, double x) {
  if (map == FeatureMap::elu_plus_one)
    return x > 0 ? std::pair(x + 1, 1.0) : std::pair(std::exp(x), std::exp(x));
  if (map == FeatureMap::relu) return {std::max(x, 0.0), x > 0 ? 1 : 0};
  if (map == FeatureMap::squared_relu) return {std::max(x, 0.0) * x, 2 * std::max(x, 0.0)};
  if (map == FeatureMap::exponential) return {std::exp(x), std::exp(x)};
  return {x, 1};
}

// Returns linear_attention() of float64 tensors on the CPU. The time is quadratic in the length:
//   w_ij = phi(q_i) . phi(k_j), or 0 for masked keys
//   out_i = n_i / d_i with n_i = sum_j w_ij v_j, and d_i = eps + sum_j w_ij or, without denominators, 1
// With the gradient g_i of out_i, the gradient of w_ij is g_i . v_j / d_i - g_i . out_i / d_i. Without
// denominators, the gradient of w_ij is g_i . v_j.
inline Tensor linear_attention_reference(const Tensor& query, const Tensor& key, const Tensor& value,
                                         const LinearAttentionOptions& o = {}) {
  using namespace reference;
  const std::vector<Tensor> inputs{contiguous(query), contiguous(key), contiguous(value)};
  const Tensor q = detach(inputs[0]), k = detach(inputs[1]), v = detach(inputs[2]);
  const int64_t dim = q.size(3), width = v.size(3);
  const auto map = [&](const Tensor& x, bool derivative) {
    const Tensor y = Tensor::empty_like(x);
    for (int64_t i = 0; i < x.numel(); ++i) {
      const auto [phi, slope] = apply_feature_map_reference(o.feature_map, x.data<double>()[i]);
      y.data<double>()[i] = derivative ? slope : phi;
    }
    return y;
  };
  const Tensor fq = map(q, false), fk = map(k, false), slopes_q = map(q, true), slopes_k = map(k, true);
  const auto key_count = [=, keys = k.size(1)](int64_t n, int64_t i) {
    const int64_t valid = o.key_lengths.defined() ? o.key_lengths.data<int64_t>()[n] : keys;
    return o.causal ? std::min(i + 1, valid) : valid;
  };
  const Tensor out = Tensor::zeros({q.size(0), q.size(1), q.size(2), width}, DType::float64);
  const Tensor denominators = Tensor::full({q.size(0), q.size(1), q.size(2), 1}, 1, DType::float64);
  for_each_query(q, [&](int64_t n, int64_t h, int64_t i) {
    double d = o.eps;
    for (int64_t j = 0; j < key_count(n, i); ++j) {
      const double w = dot(row(fq, n, i, h), row(fk, n, j, h), dim);
      d += w;
      add_scaled(row(out, n, i, h), w, row(v, n, j, h), width);
    }
    if (o.normalized) *row(denominators, n, i, h) = d;
    for (int64_t m = 0; m < width; ++m) row(out, n, i, h)[m] /= *row(denominators, n, i, h);
  });
  const auto backward = [=, out = detach(out)](const Tensor& gradient) {
    const Tensor g = gradient.clone(), gq = Tensor::zeros_like(q), gk = Tensor::zeros_like(k),
                 gv = Tensor::zeros_like(v);
    for_each_query(q, [&](int64_t n, int64_t h, int64_t i) {
      const double *const gi = row(g, n, i, h), d = *row(denominators, n, i, h);
      const double gd = o.normalized ? dot(gi, row(out, n, i, h), width) : 0;
      for (int64_t j = 0; j < key_count(n, i); ++j) {
        const double gw = (dot(gi, row(v, n, j, h), width) - gd) / d;
        add_scaled(row(gq, n, i, h), gw, row(fk, n, j, h), dim);
        add_scaled(row(gk, n, j, h), gw, row(fq, n, i, h), dim);
        add_scaled(row(gv, n, j, h), dot(row(fq, n, i, h), row(fk, n, j, h), dim) / d, gi, width);
      }
    });
    for (int64_t i = 0; i < gq.numel(); ++i) gq.data<double>()[i] *= slopes_q.data<double>()[i];
    for (int64_t i = 0; i < gk.numel(); ++i) gk.data<double>()[i] *= slopes_k.data<double>()[i];
    return Gradients{gq, gk, gv};
  };
  return record("linear_attention_reference", out, inputs, backward);
}

}  // namespace tapeformer
