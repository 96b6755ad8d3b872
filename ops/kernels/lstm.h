// Kernels of the LSTM (ops/lstm.h) with the input x (batch, frames, in). The valid lengths (batch,), in
// [0, frames], are in host memory for both backends.
#pragma once

#include <cstdint>

#include "core/base/backends.h"

namespace tapeformer {

struct LstmShape {
  int64_t batch, frames, in, hidden;
  int64_t directions;  // 1, or 2 for a bidirectional LSTM; the second direction reads the frames in reverse
};

// Weights and biases of one direction. The names are the names of torch.nn.LSTM.
template <class T>
struct LstmDirectionWeights {
  const T *weight_ih, *weight_hh;  // weight_ih (4 hidden, in), weight_hh (4 hidden, hidden)
  const T *bias_ih, *bias_hh;      // both (4 hidden,)
};

// Arrays that receive the gradients of the weights of one direction. If a pointer is null, its gradient is
// not computed. `bias` receives the gradient of bias_ih, which is equal to the gradient of bias_hh.
template <class T>
struct LstmDirectionGradients {
  T *weight_ih, *weight_hh, *bias;
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes out (batch, frames, directions * hidden), with zeros beyond the valid lengths. Also computes
    // two arrays for lstm_backward(). `gates` (directions * batch * frames, 4 hidden) receives the values of
    // the gates i, f, g and o. `cells` (directions * batch * frames, hidden) receives the cell states c. Only
    // rows for frames within the valid lengths are written. The order of the rows depends on the backend.
    template <class T>
    void lstm_forward(Backend, const LstmShape& shape, const T* x, const int64_t* lengths,
                      const LstmDirectionWeights<T>* directions, T* out, T* gates, T* cells);

    // Writes the gradients of the weights to `gradients`, and the gradient of x to gx (batch, frames, in).
    // `g` is the gradient of out. If gx is null, the gradient of x is not computed.
    template <class T>
    void lstm_backward(Backend, const LstmShape& shape, const T* g, const T* x, const int64_t* lengths,
                       const LstmDirectionWeights<T>* directions, const T* out, const T* gates,
                       const T* cells, T* gx, const LstmDirectionGradients<T>* gradients);

)

}  // namespace tapeformer
