// Long short-term memory over sequences of different lengths, in one or both directions. Hochreiter &
// Schmidhuber 1997, with the forget gate of Gers et al. 2000. For frame t of a sequence,
//   i, f, o = sigmoid(W x_t + b + U h' + b'), g = tanh(…), c = f c' + i g, h = o tanh(c),
// where h' and c' belong to the frame before (the frame after, in the reverse direction), zero at the start.
#pragma once

#include <vector>

#include "autograd/tape.h"

namespace tapeformer {

// Of one direction, with PyTorch's names and order of gates: blocks of rows i, f, g, o.
struct LstmWeights {
  Tensor weight_ih;         // (4 hidden, in)
  Tensor weight_hh;         // (4 hidden, hidden)
  Tensor bias_ih, bias_hh;  // (4 hidden,)
};

// x (batch, frames, in) floating; lengths (batch,) int64 in [0, frames], or undefined: all frames; one entry
// of `directions`, or two: forward and reverse. Result (batch, frames, directions * hidden), the forward
// direction's features first. The reverse direction starts at the last frame of each sequence. Frames beyond
// a length are not read; they get zeros and zero gradient, as PyTorch's packed sequences do.
//
// Time is spent on frames that are there only. backward() keeps x, the result and 5 * hidden numbers a frame
// and direction. Results do not depend on the number of threads where those of the matrix products do not.
// Errors: ShapeError for shapes, dtypes and lengths that do not fit.
Tensor lstm(const Tensor& x, const Tensor& lengths, const std::vector<LstmWeights>& directions);

}  // namespace tapeformer
