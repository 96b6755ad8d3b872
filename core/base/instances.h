// FunctionInstances makes it possible to instantiate function templates by their names, without repeating
// their signatures. In this example, the explicit instantiation of SoftmaxKernels defines its static member
// `all`, and the pointers in `all` instantiate the two functions.
//
//   template <class T>
//   struct SoftmaxKernels {
//     inline static const FunctionInstances all{&row_softmax<T>, &row_softmax_backward<T>};
//   };
//   template struct SoftmaxKernels<float>;
#pragma once

#include <tuple>

namespace tapeformer {

template <class... Functions>
struct FunctionInstances {
  constexpr explicit FunctionInstances(Functions... all) : functions(all...) {}
  std::tuple<Functions...> functions;
};

}  // namespace tapeformer
