// Functions that the references of attention ops share. Tensors are float64, contiguous and on the CPU.
#pragma once

#include "core/tensor.h"

namespace tapeformer::reference {

// Returns the features of token t and head h of x (batch, length, heads, dim).
inline double* row(const Tensor& x, int64_t n, int64_t t, int64_t h) {
  return x.data<double>() + ((n * x.size(1) + t) * x.size(2) + h) * x.size(3);
}
inline double dot(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}
// Computes target += factor * x.
inline void add_scaled(double* target, double factor, const double* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] += factor * x[i];
}
// Calls f(n, h, t) for each example, head and token of q (batch, length, heads, dim).
template <class F>
void for_each_query(const Tensor& q, F&& f) {
  for (int64_t n = 0; n < q.size(0); ++n)
    for (int64_t h = 0; h < q.size(2); ++h)
      for (int64_t t = 0; t < q.size(1); ++t) f(n, h, t);
}

}  // namespace tapeformer::reference
