// Short depthwise convolutions over time, as before the recurrence of Mamba-2, Gated DeltaNet and Kimi Delta
// Attention.
#pragma once

#include "autograd/tape.h"
#include "ops/kernels/short_conv.h"

namespace tapeformer {

struct ShortConvOptions {
  // Number of later tokens that a result reads, in [0, kernel - 1]. 0 is the causal convolution, whose last
  // tap reads the current token. kernel - 1 is the anticausal convolution, and kernel / 2 a centred one.
  int64_t lookahead = 0;
  GateActivation activation = GateActivation::none;
  // Numbers of valid tokens, (batch,) int64 in [0, length]. Later tokens are read as 0, and their results and
  // gradients are 0. Undefined: all tokens are valid.
  Tensor lengths = {};
  // The tokens before the first token, (batch, kernel - 1, channels) in the dtype of x. Requires a lookahead
  // of 0. Undefined: zeros.
  Tensor history = {};
  // Starts of sequences within an example, (batch, length), integers 0 and 1. A 1 starts a sequence at its
  // token. No tap reaches from one sequence into another. Undefined: no starts.
  Tensor boundaries = {};
};

// Computes y[b, t, c] = activation(Σ_j weight[c, j] x[b, t + j - (kernel - 1) + lookahead, c]), where x is 0
// outside of the sequence of token t.
//
// x and the result are (batch, length, channels) in float32, float64 or bfloat16, and `weight` is (channels,
// kernel) in the compute dtype of x, with at most kMaxShortConvKernel taps. The sums of bfloat16 inputs are
// float32. x is copied only if its last dimension is not contiguous. PyTorch's Conv1d with groups = channels
// has the weight (channels, 1, kernel), in the same order. Gradients flow to x, weight and history. The tape
// keeps the inputs only. Throws ShapeError for mismatched shapes and dtypes and for invalid options.
Tensor short_conv(const Tensor& x, const Tensor& weight, const ShortConvOptions& options = {});

// Processes one token of the causal convolution: writes the result to `out` and appends x to `history`, which
// holds inputs (before the convolution). x and `out` are (batch, channels) with contiguous last dimensions,
// `weight` is (channels, kernel), and `history` is (batch, kernel - 1, channels) and contiguous. All tensors
// are float32 or float64. `out` may be x. The call is not recorded and allocates no memory. Throws ShapeError
// for mismatched shapes and dtypes.
void short_conv_step(const Tensor& x, const Tensor& weight, GateActivation activation, const Tensor& history,
                     const Tensor& out);

}  // namespace tapeformer
