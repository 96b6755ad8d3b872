// A program that uses the installed package: it includes the umbrella header, links only the component
// `core`, adds two tensors and computes a gradient.
#include <tapeformer/tapeformer.h>

#include <cstdio>

int main() {
  using namespace tapeformer;
  const Tensor a = Tensor::from_vector<float>({1, 2, 3}, {3});
  const Tensor b = Tensor::from_vector<float>({4, 5, 6}, {3});
  set_requires_grad(a);
  const Tensor c = add(a, b);
  backward(c, Tensor::full({3}, 1));
  for (const double value : c.to_vector()) std::printf("%g ", value);
  std::printf("gradient");
  for (const double value : gradient(a).to_vector()) std::printf(" %g", value);
  std::printf("\n");
}
