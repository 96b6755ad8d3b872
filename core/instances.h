// Explicit instantiation of function templates by name, without repeating their signatures:
//
//   template <class T>
//   struct SoftmaxKernels {
//     inline static const Instances all{&row_softmax<T>, &row_softmax_backward<T>};
//   };
//   template struct SoftmaxKernels<float>;
//
// The instantiation of the struct defines its static member, which refers to the functions.
#pragma once

#include <tuple>

namespace tapeformer {

template <class... Functions>
struct Instances {
  constexpr explicit Instances(Functions... all) : functions(all...) {}
  std::tuple<Functions...> functions;
};

}  // namespace tapeformer
