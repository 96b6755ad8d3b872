// LSTM (ops/lstm.h) over x (batch, frames, in). `lengths` (batch,), in [0, frames], is in CPU memory on both
// backends, because both backends read it on the CPU.
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

// Targets of the gradients of a direction. Each pointer may be null. Both biases have the same gradient.
template <class T>
struct LstmGradient {
  T *weight_ih, *weight_hh, *bias;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, frames, directions * hidden), with zeros beyond the lengths. For lstm_backward(),
    // also writes the values of i, f, g, o to gates (directions * batch * frames, 4 hidden) and the values of
    // c to cells (directions * batch * frames, hidden), for frames within the lengths. The order of the rows
    // of `gates` and `cells` depends on the backend.
    template <class T> void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                                         const LstmDirection<T>* directions, T* out, T* gates, T* cells);

    // Computes the gradients from g, which has the shape of out. gx (batch, frames, in) may be null.
    template <class T>
    void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                       const LstmDirection<T>* directions, const T* out, const T* gates, const T* cells,
                       T* gx, const LstmGradient<T>* gradients);

)

}  // namespace tapeformer
