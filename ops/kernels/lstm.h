// LSTM (ops/lstm.h) over x (batch, frames, in). `lengths` (batch,), in [0, frames], is in host memory on both
// backends, because the host uses it.
#pragma once

#include <cstdint>

#include "core/backends.h"

namespace tapeformer {

struct LstmShape {
  int64_t batch, frames, in, hidden;
  int64_t directions;  // 1 or 2; direction 1 is the reverse direction
};

template <class T>
struct LstmDirection {
  const T *weight_ih, *weight_hh;  // (4 hidden, in), (4 hidden, hidden)
  const T *bias_ih, *bias_hh;      // (4 hidden,)
};

// Targets of the gradients of a direction. Each may be null. Both biases have the same gradient.
template <class T>
struct LstmGradient {
  T *weight_ih, *weight_hh, *bias;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, frames, directions * hidden), with zeros beyond the lengths. For the gradient, at
    // frames within the lengths, gates (directions * batch * frames, 4 hidden) receives the values of i, f,
    // g, o, and cells (directions * batch * frames, hidden) the values of c. The order of their rows depends
    // on the backend.
    template <class T> void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                                         const LstmDirection<T>* directions, T* out, T* gates, T* cells);

    // Computes the gradients from g, which has the shape of out. gx (batch, frames, in) may be null.
    template <class T>
    void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                       const LstmDirection<T>* directions, const T* out, const T* gates, const T* cells,
                       T* gx, const LstmGradient<T>* gradients);

)

}  // namespace tapeformer
