// Small functions that the ops share.
#pragma once

#include <initializer_list>

#include "autograd/tape.h"

namespace tapeformer {

// Returns x if it is contiguous, otherwise a contiguous copy of x. The copy is not recorded on the tape.
inline Tensor make_contiguous(const Tensor& x) {
  return x.is_contiguous() ? x : detach(x).clone();
}

template <class T>
T* get_data_or_null(const Tensor& x) {
  return x.defined() ? x.data<T>() : nullptr;
}

// Returns one tensor per input. If an input needs a gradient, its tensor is uninitialised and has the shape,
// dtype and device of the input. Otherwise its tensor is undefined.
inline Gradients allocate_gradients(NeededGradients needs, std::initializer_list<const Tensor*> inputs) {
  Gradients gradients;
  int index = 0;
  for (const Tensor* input : inputs)
    gradients.push_back(needs[index++] ? Tensor::empty(input->shape(), input->dtype(), input->device())
                                       : Tensor{});
  return gradients;
}

}  // namespace tapeformer
