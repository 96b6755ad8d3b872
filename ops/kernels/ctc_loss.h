// CTC loss (ops/ctc_loss.h) of a batch of utterances, each by itself.
#pragma once

#include <cstdint>

namespace tapeformer::cpu {

struct CtcShape {
  int64_t batch, frames, classes, longest;  // logits (batch, frames, classes), labels (batch, longest)
  int64_t blank;
};

// losses (batch,): negative log-likelihoods, 0 where counted[b] is 0. gradient (batch, frames, classes), or
// null: their derivatives times `scale`, zero beyond the frame lengths and where counted[b] is 0. Counted
// pairs have enough frames for their labels.
template <class T>
void ctc_loss(const CtcShape& shape, const T* logits, const int64_t* frame_lengths, const int64_t* labels,
              const int64_t* label_lengths, const uint8_t* counted, T scale, T* losses, T* gradient);

}  // namespace tapeformer::cpu
