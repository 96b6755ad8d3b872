// Connectionist temporal classification: the probability of a sequence of labels, summed over all ways of
// laying it along the frames with blanks between. Graves et al. 2006, "Connectionist temporal classification:
// labelling unsegmented sequence data with recurrent neural networks", equations 6 to 16.
#pragma once

#include <cstdint>

#include "autograd/tape.h"

namespace tapeformer {

// What the sum of the losses is divided by: the utterances, or the labels, of those pairs that are feasible.
// Neither is PyTorch's "mean", which divides every loss by its own number of labels before averaging.
enum class CtcReduction { per_utterance, per_label };

struct CtcOptions {
  int64_t blank = 0;  // the class that stands for no label
  CtcReduction reduction = CtcReduction::per_utterance;
};

struct CtcLoss {
  Tensor loss;         // scalar, recorded; 0 when no pair is feasible
  Tensor losses;       // (batch,) negative log-likelihoods in nats, not recorded; 0 for infeasible pairs
  int64_t infeasible;  // pairs with too few frames for their labels
};

// logits (batch, frames, classes) floating, of which log_softmax is taken here; frame_lengths (batch,) int64
// in [0, frames]; labels (batch, longest) int64, each of the first label_lengths (batch,) int64 a class other
// than the blank, the rest not looked at. Equal neighbours need a blank between them, so a pair is infeasible
// when its frames are fewer than its labels and repeats: it adds nothing to loss and gradient and is counted.
// Empty labels are legal and mean blanks only. Logits beyond a frame length are not read and get zero
// gradient.
//
// The recursions run on logarithms, relative to the largest state of the frame before, so that float32 keeps
// its accuracy over thousands of frames. Results depend neither on threads nor on the rest of the batch. A
// loss is infinite, and its gradient zero, when the labels have probability zero; NaN in the frames gives
// NaN.
//
// The lengths and labels are on the CPU whatever device the logits are on: which pairs are feasible is worked
// out from them without waiting. Errors: ShapeError for wrong shapes, dtypes, lengths, labels and blanks,
// naming the utterance.
CtcLoss ctc_loss(const Tensor& logits, const Tensor& frame_lengths, const Tensor& labels,
                 const Tensor& label_lengths, const CtcOptions& options = {});

// Returns the divisor of ctc_loss's mean: the number of feasible pairs or of their labels. Arguments are as
// for ctc_loss.
int64_t ctc_loss_count(const Tensor& frame_lengths, const Tensor& labels, const Tensor& label_lengths,
                       CtcReduction reduction);

}  // namespace tapeformer
