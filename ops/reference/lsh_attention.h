// LSH attention as softmax attention with a mask, with its gradient. Tests compare lsh_attention() with this
// reference. The time is quadratic in the length.
#pragma once

#include <algorithm>
#include <numeric>

#include "ops/elementwise.h"
#include "ops/lsh_attention.h"
#include "ops/reference/softmax_attention.h"
#include "ops/sum.h"

namespace tapeformer {

// Adds the number of times that each query finds each key in round `round` to counts (length, length). `ids`
// (rounds, length) contains the buckets. Positions at and after `valid` are padding.
inline void count_lsh_keys(const int32_t* ids, int64_t length, int64_t valid, int64_t round,
                           const LshOptions& o, double* counts) {
  const int64_t chunks = (valid + o.chunk_length - 1) / o.chunk_length;
  const auto sort = [&](int64_t r) {
    std::vector<int64_t> order(static_cast<size_t>(valid));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return ids[r * length + a] < ids[r * length + b]; });
    return order;
  };
  const std::vector<int64_t> order = sort(round);
  for (int64_t s = 0; s < valid; ++s) {
    const int64_t i = order[static_cast<size_t>(s)], chunk = s / o.chunk_length;
    const auto visit = [&](int64_t r, int64_t c) {
      const std::vector<int64_t> keys = r == round ? order : sort(r);
      for (int64_t t = c * o.chunk_length; t < std::min((c + 1) * o.chunk_length, valid); ++t) {
        const int64_t j = keys[static_cast<size_t>(t)];
        const bool same_bucket = r == round && ids[r * length + j] == ids[r * length + i];
        if ((o.across_buckets || same_bucket) && (!o.causal || j <= i)) ++counts[i * length + j];
      }
    };
    visit(round, chunk);
    if (chunk > 0)
      visit(round, chunk - 1);
    else if (o.wrap != LshOptions::Wrap::none)
      visit(o.wrap == LshOptions::Wrap::round ? round : (round + o.rounds - 1) % o.rounds, chunks - 1);
  }
}

// Returns the log weights (batch, heads, length, length) of the keys that the rounds [first, end) find:
// log(n) for a key that a query finds n times, or 0 if each key has the weight 1. A query does not attend to
// the key at its position, unless it finds no other key.
inline Tensor make_lsh_log_weights(const Tensor& buckets, int64_t first, int64_t end, const LshOptions& o) {
  const int64_t heads = buckets.size(1), length = buckets.size(3);
  const bool has_multiplicities =
      o.combine == LshOptions::Combine::mean || o.duplicates == LshOptions::Duplicates::none;
  const Tensor weights = Tensor::zeros({buckets.size(0), heads, length, length}, DType::float64);
  for (int64_t head = 0; head < buckets.size(0) * heads; ++head) {
    double* const w = weights.data<double>() + head * length * length;
    const int64_t valid = o.key_lengths.defined() ? o.key_lengths.data<int64_t>()[head / heads] : length;
    for (int64_t r = first; r < end; ++r)
      count_lsh_keys(buckets.data<int32_t>() + head * buckets.size(2) * length, length, valid, r, o, w);
    for (int64_t i = 0; i < length; ++i) {
      double* const row = w + i * length;
      row[i] = 0;
      if (i < valid && std::all_of(row, row + length, [](double n) { return n == 0; })) row[i] = 1;
      for (int64_t j = 0; j < length; ++j) row[j] = row[j] > 0 && !has_multiplicities ? 0 : std::log(row[j]);
    }
  }
  return weights;
}

// Returns lsh_attention() of float64 tensors on the CPU.
inline Tensor lsh_attention_reference(const Tensor& q, const Tensor& v, const Tensor& buckets, LshOptions o) {
  if (q.size(1) <= o.chunk_length) {  // one chunk, so LSH attention is exact
    o.rounds = 1;
    o.across_buckets = true;
    o.wrap = LshOptions::Wrap::none;
  }
  const auto dim = static_cast<double>(q.size(3));
  const Tensor k = div(q, sqrt(add(sum(square(q), -1, true), 1e-6 * dim)));
  const double scale = o.scale == LshOptions::Scale::rsqrt_dim ? 1 / std::sqrt(dim) : 1;
  const auto attend = [&](int64_t first, int64_t end) {
    return softmax_attention_reference(
        q, k, v, {.bias = make_lsh_log_weights(buckets, first, end, o), .scale = scale});
  };
  if (o.combine == LshOptions::Combine::logsumexp) return attend(0, o.rounds);
  Tensor total = attend(0, 1);
  for (int64_t r = 1; r < o.rounds; ++r) total = add(total, attend(r, r + 1));
  return mul(total, 1 / static_cast<double>(o.rounds));
}

}  // namespace tapeformer
