// Softmax attention in plain loops, with its gradient. Tests compare softmax_attention() with this reference.
#pragma once

#include <cmath>

#include "ops/reference/rows.h"
#include "ops/softmax_attention.h"
#include "ops/view.h"

namespace tapeformer {

// Returns softmax_attention() of float64 tensors on the CPU:
//   s_ij = scale q_i . k_j + bias_ij, or -inf if query i does not attend to key j
//   w_ij = softmax_j(s_ij), or 0 if query i attends to no key
//   out_i = sum_j m_ij w_ij v_j, where m_ij is the multiplier of dropout
// With the gradient g_i of out_i, the gradient of s_ij is w_ij (m_ij g_i . v_j - g_i . out_i).
inline Tensor softmax_attention_reference(const Tensor& query, const Tensor& key, const Tensor& value,
                                          const SoftmaxAttentionOptions& o = {}) {
  using namespace reference;
  std::vector<Tensor> inputs{contiguous(query), contiguous(key), contiguous(value)};
  if (o.bias.defined())
    inputs.push_back(contiguous(transpose(o.bias, 1, 2)));  // (batch, queries, heads, keys)
  const Tensor q = detach(inputs[0]), k = detach(inputs[1]), v = detach(inputs[2]);
  const int64_t queries = q.size(1), keys = k.size(1), heads = q.size(2), dim = q.size(3), width = v.size(3);
  const double scale = o.scale != 0 ? o.scale : 1 / std::sqrt(static_cast<double>(dim));
  KeyPattern pattern = o.pattern;
  if (const Tensor& table = o.key_blocks; table.defined())
    pattern.table = {table.data<int32_t>(), pattern.table.block_size, table.size(-2), table.size(-1),
                     table.rank() == 3 ? table.size(-2) * table.size(-1) : 0};
  const auto multiplier = [=](int64_t n, int64_t h, int64_t i, int64_t j) {
    const auto element = static_cast<uint64_t>(o.dropout_offset + ((n * heads + h) * queries + i) * keys + j);
    if (o.dropout == 0) return 1.0;
    return o.dropout_stream.bits16(element) < std::lround(o.dropout * 65536) ? 0 : 1 / (1 - o.dropout);
  };
  const Tensor weights = Tensor::zeros({q.size(0), queries, heads, keys}, DType::float64);
  const Tensor out = Tensor::zeros({q.size(0), queries, heads, width}, DType::float64);
  for_each_query(q, [&](int64_t n, int64_t h, int64_t i) {
    const int64_t valid = o.key_lengths.defined() ? o.key_lengths.data<int64_t>()[n] : keys;
    const AttendedKeys attended{pattern.get_head_pattern(h), queries, keys, valid, o.causal};
    double* const w = row(weights, n, i, h);
    double maximum = -INFINITY, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      w[j] = attended.contains(i, j) ? scale * dot(row(q, n, i, h), row(k, n, j, h), dim) : -INFINITY;
      if (o.bias.defined()) w[j] += row(inputs[3], n, i, h)[j];
      maximum = std::max(maximum, w[j]);
    }
    for (int64_t j = 0; j < keys; ++j) sum += w[j] = w[j] == -INFINITY ? 0 : std::exp(w[j] - maximum);
    for (int64_t j = 0; j < keys; ++j) {
      if (w[j] != 0) w[j] /= sum;
      add_scaled(row(out, n, i, h), multiplier(n, h, i, j) * w[j], row(v, n, j, h), width);
    }
  });
  const auto backward = [=, count = inputs.size(), out = detach(out)](const Tensor& gradient) {
    const Tensor g = gradient.clone(), gq = Tensor::zeros_like(q), gk = Tensor::zeros_like(k),
                 gv = Tensor::zeros_like(v), gs = Tensor::zeros_like(weights);
    for_each_query(q, [&](int64_t n, int64_t h, int64_t i) {
      const double* const gi = row(g, n, i, h);
      for (int64_t j = 0; j < keys; ++j) {
        const double w = row(weights, n, i, h)[j], m = multiplier(n, h, i, j);
        const double s = w * (m * dot(gi, row(v, n, j, h), width) - dot(gi, row(out, n, i, h), width));
        row(gs, n, i, h)[j] = s;
        add_scaled(row(gq, n, i, h), scale * s, row(k, n, j, h), dim);
        add_scaled(row(gk, n, j, h), scale * s, row(q, n, i, h), dim);
        add_scaled(row(gv, n, j, h), w * m, gi, width);
      }
    });
    return count == 3 ? Gradients{gq, gk, gv} : Gradients{gq, gk, gv, gs};
  };
  return record("softmax_attention_reference", out, inputs, backward);
}

}  // namespace tapeformer
