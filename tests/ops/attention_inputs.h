// Queries, keys and values for tests of attention, and access to their elements.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "core/base/errors.h"
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
// Returns random float64 queries, keys and values with the sizes `s`. `salt` is a seed: each value of `salt`
// gives different tensors.
inline AttentionInputs attention_inputs(const AttentionSizes& s, int salt = 0) {
  return {normal({s.batch, s.query_length, s.heads, s.dim}, 3 * salt + 1),
          normal({s.batch, s.key_length, s.heads, s.dim}, 3 * salt + 2),
          normal({s.batch, s.key_length, s.heads, s.value_dim}, 3 * salt + 3)};
}

// Returns the relative error that gradcheck() finds in the gradients of attention(q, k, v, options).
template <class Attention, class Options>
double gradient_error(Attention* attention, const AttentionSizes& size, const Options& options) {
  const GradcheckResult result =
      gradcheck([&](const std::vector<Tensor>& in) { return attention(in[0], in[1], in[2], options); },
                attention_inputs(size).list(), {.step = 1e-4});
  CHECK(result.message == "");
  return result.max_relative_error;
}

// Returns the gradients of q, k and v in attention(q, k, v, options) for a cotangent. Input i requires a
// gradient if bit i of `wanted` is set. The gradients of the other inputs are undefined.
template <class Attention, class Options>
std::vector<Tensor> allocate_attention_gradients(Attention* attention, const AttentionInputs& inputs,
                                                 const Options& options, const Tensor& cotangent, DType dtype,
                                                 uint32_t wanted) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs.list()) {
    leaves.push_back(input.to(dtype));
    if ((wanted >> (leaves.size() - 1)) & 1) set_requires_grad(leaves.back());
  }
  backward(attention(leaves[0], leaves[1], leaves[2], options), cotangent.to(dtype));
  for (Tensor& leaf : leaves) leaf = gradient(leaf);
  return leaves;
}

// Tests each nonempty subset of q, k and v as the inputs that require a gradient. Checks that the float32
// gradients of these inputs are within `tolerance` of `exact`, and that the remaining gradients are
// undefined.
template <class Attention, class Options>
void check_wanted_gradients(Attention* attention, const AttentionInputs& inputs, const Options& options,
                            const Tensor& cotangent, const std::vector<Tensor>& exact, double tolerance) {
  for (uint32_t wanted = 1; wanted < 8; ++wanted) {
    const std::vector<Tensor> some =
        allocate_attention_gradients(attention, inputs, options, cotangent, DType::float32, wanted);
    for (size_t i = 0; i < 3; ++i) {
      CHECK(some[i].defined() == (((wanted >> i) & 1) != 0));
      if (some[i].defined()) CHECK(max_difference(some[i], exact[i]) < tolerance);
    }
  }
}

// Returns the result of an op and the gradients of its inputs.
inline std::vector<Tensor> outcome(const std::function<Tensor(const std::vector<Tensor>&)>& op,
                                   const std::vector<Tensor>& inputs, const Tensor& cotangent) {
  std::vector<Tensor> leaves;
  for (const Tensor& input : inputs) leaves.push_back(set_requires_grad(input.clone()));
  const Tensor y = op(leaves);
  backward(y, cotangent.to(y.dtype()));
  std::vector<Tensor> all{detach(y)};
  for (const Tensor& leaf : leaves) all.push_back(gradient(leaf));
  return all;
}

}  // namespace tapeformer::test
