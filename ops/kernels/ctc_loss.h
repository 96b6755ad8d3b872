// Kernel of the CTC loss (ops/ctc_loss.h).
#pragma once

#include <cstdint>

#include "core/base/backends.h"
#include "core/base/host_device.h"

namespace tapeformer {

// Sizes of logits (batch, frames, classes) and labels (batch, max_labels), and the class of the blank.
struct CtcShape {
  int64_t batch, frames, classes, max_labels;
  int64_t blank;
};

// Two finite numbers replace log(0), so that differences of log-probabilities are never NaN. kCtcLogZero is
// the log-probability of a state that no path reaches. kCtcMinLogProbability is the minimum log-probability
// of a class, and replaces smaller values.
inline constexpr double kCtcLogZero = -1e30, kCtcMinLogProbability = -1e22;

// A range [begin, end) of the states of an utterance. An utterance with n labels has 2 n + 1 states: its
// labels, and a blank before each label and after the last label. From one frame to the next, a path stays in
// its state, moves to the next state, or skips the blank between two different labels.
struct CtcStateRange {
  int64_t begin, end;
};
// Returns the range of states in which a complete path can be at frame t. A complete path begins in one of
// the first two states and ends in one of the last two states.
TAPEFORMER_HOST_DEVICE inline CtcStateRange find_ctc_state_range(int64_t t, int64_t frames, int64_t states) {
  const int64_t begin = states - 2 * (frames - t), end = 2 * (t + 1);
  return {begin > 0 ? begin : 0, end < states ? end : states};
}

TAPEFORMER_FOR_EACH_BACKEND(

    // Computes losses (batch,), the negative log-likelihoods of the labels. If gradient (batch, frames,
    // classes) is not null, also writes `scale` times the derivatives of the losses to `gradient`. Frames
    // beyond frame_lengths get zeros. If feasible_mask[b] is 0, utterance b has too few frames for its
    // labels, and its loss and gradient are 0.
    template <class T> void ctc_loss(Backend, const CtcShape& shape, const T* logits,
                                     const int64_t* frame_lengths, const int64_t* labels,
                                     const int64_t* label_lengths, const uint8_t* feasible_mask, T scale,
                                     T* losses, T* gradient);

)

}  // namespace tapeformer
