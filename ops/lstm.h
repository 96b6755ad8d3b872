// Long short-term memory (LSTM) over sequences of different lengths, in one or two directions. The LSTM is
// that of Hochreiter and Schmidhuber (1997), with the forget gate of Gers et al. (2000). For frame t of a
// sequence,
//   i, f, o = sigmoid(W x_t + b + U h' + b'), g = tanh(…), c = f c' + i g, h = o tanh(c),
// where h' and c' are the state of the previous frame. In the reverse direction, h' and c' are the state of
// the next frame. The initial state of each direction is zero.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// The weights of one direction, named as in torch.nn.LSTM. Each tensor consists of four blocks of `hidden`
// rows. As in PyTorch, the blocks belong to the gates i, f, g and o, in this order.
struct LstmWeights {
  Tensor weight_ih;         // (4 hidden, in)
  Tensor weight_hh;         // (4 hidden, hidden)
  Tensor bias_ih, bias_hh;  // (4 hidden,)
};

// Runs an LSTM on x (batch, frames, in), which is float32 or float64. `lengths` (batch,) contains int64
// numbers in [0, frames]. If `lengths` is undefined, each sequence has all frames. `directions` contains the
// weights of the forward direction, and optionally of the reverse direction. The result has the shape
// (batch, frames, directions * hidden), with the features of the forward direction first. The reverse
// direction starts at the last frame of each sequence. Frames after the end of a sequence are not read. For
// frames after the end of a sequence, the result and the gradient are zero, as for PyTorch's packed
// sequences.
//
// If the precision of the device is bfloat16 (core/device_control.h), the operands of matrix products are
// rounded to bfloat16, except in the recurrent products on CUDA. States and gates are float32. The tape keeps
// x, the result and 5 * hidden numbers per frame and direction. Throws ShapeError for mismatched shapes,
// dtypes and lengths.
Tensor lstm(const Tensor& x, const Tensor& lengths, const std::vector<LstmWeights>& directions);

}  // namespace tapeformer
