// Three ops on small float64 tensors, for tests of the tape without ops/.
#pragma once

#include "autograd/tape.h"

namespace tapeformer::small {

template <class F>
Tensor map2(const Tensor& a, const Tensor& b, F f) {
  const Tensor out = Tensor::empty_like(a);
  for (int64_t i = 0; i < a.numel(); ++i) out.data<double>()[i] = f(a.data<double>()[i], b.data<double>()[i]);
  return out;
}

inline Tensor plus(const Tensor& a, const Tensor& b) {
  return record("add", map2(a, b, [](double x, double y) { return x + y; }), {&a, &b}, [](const Tensor& g) {
    return Gradients{g, g};
  });
}

inline Tensor times(const Tensor& a, const Tensor& b) {
  auto product = [](double x, double y) { return x * y; };
  return record("mul", map2(a, b, product), {&a, &b},
                [a = detach(a), b = detach(b), product](const Tensor& g, NeededGradients needs) {
                  return Gradients{needs[0] ? map2(g, b, product) : Tensor{},
                                   needs[1] ? map2(g, a, product) : Tensor{}};
                });
}

inline Tensor scalar(double value) {
  return Tensor::from_vector<double>({value}, {1});
}
inline Tensor leaf(double value) {
  return set_requires_grad(scalar(value));
}

}  // namespace tapeformer::small
