// Convolution over time.
#pragma once

#include "autograd/tape.h"

namespace tapeformer {

struct Conv1dOptions {
  int64_t stride = 1;
  int64_t padding_before = 0, padding_after = 0;  // number of zero frames added before and after a sequence
};

// Returns the number of steps of the result for a sequence of `frames` frames. Returns 0 if `frames` is 0 or
// if the padded sequence is shorter than the kernel.
int64_t count_conv1d_steps(int64_t frames, int64_t kernel, const Conv1dOptions& options);

// Computes y[b, t] = bias + Σ_k weight[:, k, :] x[b, stride * t + k - padding_before].
//
// x has the shape (batch, frames, in), `weight` the shape (out, kernel, in), and the result the shape (batch,
// steps, out). `bias` has the shape (out,) or is undefined. PyTorch's Conv1d has weights (out, in, kernel).
//
// `lengths` (batch,), int64 on the CPU, holds the number of frames of each sequence. If `lengths` is
// undefined, all frames are valid. Frames after the end of a sequence are treated as zeros, and the result is
// zero after the last step of the sequence. Throws ShapeError for mismatched shapes and dtypes and for
// invalid options.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& lengths,
              const Conv1dOptions& options = {});

}  // namespace tapeformer
