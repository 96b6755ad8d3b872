// CTC loss (ops/ctc_loss.h) of a batch of utterances, each by itself.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/host_device.h"

namespace tapeformer {

struct CtcShape {
  int64_t batch, frames, classes, longest;  // logits (batch, frames, classes), labels (batch, longest)
  int64_t blank;
};

// Labels of an utterance with a blank before, between and after them are its states: 2 labels + 1. A path
// stays in a state, goes to the next one, or skips the blank between two labels that differ.
//
// Logarithms of impossible events are finite, so that their differences are numbers: kNever for states that
// no path reaches, kUnlikeliest for classes of probability zero.
inline constexpr double kCtcNever = -1e30, kCtcUnlikeliest = -1e22;

// States that lie on some whole path at frame t of `frames`.
struct CtcSpan {
  int64_t begin, end;
};
TAPEFORMER_HOST_DEVICE inline CtcSpan ctc_span(int64_t t, int64_t frames, int64_t states) {
  const int64_t begin = states - 2 * (frames - t), end = 2 * (t + 1);
  return {begin > 0 ? begin : 0, end < states ? end : states};
}

TAPEFORMER_FOR_EACH_BACKEND(

    // losses (batch,): negative log-likelihoods, 0 where counted[b] is 0. gradient (batch, frames, classes),
    // or null: their derivatives times `scale`, zero beyond the frame lengths and where counted[b] is 0.
    // Counted pairs have enough frames for their labels.
    template <class T> void ctc_loss(Backend, const CtcShape& shape, const T* logits,
                                     const int64_t* frame_lengths, const int64_t* labels,
                                     const int64_t* label_lengths, const uint8_t* counted, T scale, T* losses,
                                     T* gradient);

)

}  // namespace tapeformer
