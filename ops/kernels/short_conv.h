// Kernels of short depthwise convolutions (ops/short_conv.h).
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "ops/kernels/attention.h"
#include "ops/kernels/gate_activation.h"

namespace tapeformer {

inline constexpr int64_t kMaxShortConvKernel = 32;

// The positions [begin, end) of tokens. Tokens of the history have negative positions, and the last of them
// has position -1.
struct TokenRange {
  int64_t begin = 0, end = 0;
};

struct ShortConvShape {
  int64_t batch = 0, length = 0, channels = 0, kernel = 0, lookahead = 0;
  GateActivation activation = GateActivation::none;
  const int64_t* lengths = nullptr;     // (batch,), or null if all tokens are valid
  const int64_t* boundaries = nullptr;  // (batch, length), or null if there are no boundaries

  // Returns the number of tokens before the current token that a result reads.
  TAPEFORMER_HOST_DEVICE int64_t count_earlier() const { return kernel - 1 - lookahead; }
  TAPEFORMER_HOST_DEVICE int64_t get_valid_tokens(int64_t example) const {
    return get_valid_length(lengths, example, length);
  }
  // Returns the tokens in [token - before, token + after] that are in the sequence of `token`, from the
  // position `first` to the last valid token. `first` is 0 or, with a history, 1 - kernel.
  TAPEFORMER_HOST_DEVICE TokenRange find_neighbours(int64_t example, int64_t token, int64_t before,
                                                    int64_t after, int64_t first) const {
    const int64_t valid = get_valid_tokens(example);
    TokenRange range{token - before < first ? first : token - before,
                     token + after < valid ? token + after + 1 : valid};
    if (!boundaries) return range;
    const int64_t* const starts = boundaries + example * length;
    for (int64_t p = token; p >= 0 && p > range.begin; --p)
      if (starts[p]) range.begin = p;
    for (int64_t p = token + 1 < 0 ? 0 : token + 1; p < range.end; ++p)
      if (starts[p]) range.end = p;
    return range;
  }
};

template <class T>
struct ShortConvInputs : ShortConvShape {
  AttentionRows<const T> x;            // (batch, length, 1, channels)
  const Compute<T>* weight = nullptr;  // (channels, kernel)
  const T* history = nullptr;          // (batch, kernel - 1, channels), or null

  TAPEFORMER_HOST_DEVICE int64_t get_first_position() const { return history ? 1 - kernel : 0; }
  // Returns the tokens that the result of a token reads.
  TAPEFORMER_HOST_DEVICE TokenRange find_inputs(int64_t example, int64_t token) const {
    return find_neighbours(example, token, count_earlier(), lookahead, get_first_position());
  }
  // Returns the tokens whose results read the input at a position.
  TAPEFORMER_HOST_DEVICE TokenRange find_readers(int64_t example, int64_t position) const {
    TokenRange range = find_neighbours(example, position, lookahead, count_earlier(), 0);
    if (range.begin < 0) range.begin = 0;
    return position < get_valid_tokens(example) ? range : TokenRange{};
  }
  TAPEFORMER_HOST_DEVICE const T* row(int64_t example, int64_t position) const {
    return position < 0 ? history + ((example + 1) * (kernel - 1) + position) * channels
                        : x.row(example, position, 0);
  }
};

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes y (batch, length, channels).
    template <class T> void short_conv_forward(Backend, const ShortConvInputs<T>& inputs, T* y);
    // Computes the gradients of x, weight and history, in the shapes of these tensors, from the gradient `g`
    // of y. gx, gweight and ghistory can be null.
    template <class T>
    void short_conv_backward(Backend, const ShortConvInputs<T>& inputs, AttentionRows<const T> g, T* gx,
                             Compute<T>* gweight, T* ghistory);

    // Processes one token. x and `out` are (batch, channels). `history` is updated.
    template <class T> void short_conv_step(Backend, const ShortConvShape& shape, AttentionRows<const T> x,
                                            const T* weight, T* history, AttentionRows<T> out);

)

}  // namespace tapeformer
