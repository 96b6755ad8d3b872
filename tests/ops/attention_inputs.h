// Queries, keys and values for tests of attention, and access to their elements.
#pragma once

#include <string>
#include <vector>

#include "core/errors.h"
#include "tests/support/random.h"

namespace tapeformer::test {

struct AttentionSizes {
  int64_t batch, query_length, key_length, heads, dim, value_dim;
};

inline std::string describe(const AttentionSizes& s) {
  return concat_text(s.batch, " x ", s.query_length, "/", s.key_length, " x ", s.heads, " x ", s.dim, "/",
                     s.value_dim);
}

struct AttentionInputs {
  Tensor q, k, v;
  std::vector<Tensor> list() const { return {q, k, v}; }
};
// Returns float64 queries, keys and values of the given sizes. The salt selects the values.
inline AttentionInputs attention_inputs(const AttentionSizes& s, int salt = 0) {
  return {normal({s.batch, s.query_length, s.heads, s.dim}, 3 * salt + 1),
          normal({s.batch, s.key_length, s.heads, s.dim}, 3 * salt + 2),
          normal({s.batch, s.key_length, s.heads, s.value_dim}, 3 * salt + 3)};
}

// Returns element (n, t, h, i) of float64 rows (batch, length, heads, dim) with any strides.
inline double at(const Tensor& x, int64_t n, int64_t t, int64_t h, int64_t i) {
  const Shape& s = x.strides();
  return x.data<double>()[n * s[0] + t * s[1] + h * s[2] + i * s[3]];
}

}  // namespace tapeformer::test
