// CTC loss (ops/ctc_loss.h) of a batch of independent utterances.
#pragma once

#include <cstdint>

#include "core/backends.h"
#include "core/host_device.h"

namespace tapeformer {

struct CtcShape {
  int64_t batch, frames, classes, max_labels;  // logits (batch, frames, classes), labels (batch, max_labels)
  int64_t blank;
};

// The states of an utterance are its labels with a blank before, between and after them: 2 * labels + 1
// states. A path stays in a state, moves to the next state, or skips the blank between two different labels.
//
// Finite values replace log(0), so that differences of log-probabilities are never NaN: kCtcImpossible for
// states that no path reaches, and kCtcMinLogProbability for classes of probability zero.
inline constexpr double kCtcImpossible = -1e30, kCtcMinLogProbability = -1e22;

// The range [begin, end) of the states that a complete path can have at a frame.
struct CtcSpan {
  int64_t begin, end;
};
TAPEFORMER_HOST_DEVICE inline CtcSpan ctc_span(int64_t t, int64_t frames, int64_t states) {
  const int64_t begin = states - 2 * (frames - t), end = 2 * (t + 1);
  return {begin > 0 ? begin : 0, end < states ? end : states};
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes losses (batch,), the negative log-likelihoods. If gradient (batch, frames, classes) is not
    // null, it receives the derivatives of the losses times `scale`, with zeros beyond the frame lengths.
    // feasible_mask[b] is 1 if utterance b has enough frames for its labels; otherwise its loss and gradient
    // are 0.
    template <class T> void ctc_loss(Backend, const CtcShape& shape, const T* logits,
                                     const int64_t* frame_lengths, const int64_t* labels,
                                     const int64_t* label_lengths, const uint8_t* feasible_mask, T scale,
                                     T* losses, T* gradient);

)

}  // namespace tapeformer
