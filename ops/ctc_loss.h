// The loss of connectionist temporal classification (CTC), which is the negative log-probability of a
// sequence of labels. The probability is the sum over all alignments of labels and blanks with the frames.
// Source: Graves et al. 2006, "Connectionist temporal classification: labelling unsegmented sequence data
// with recurrent neural networks", equations 6 to 16.
#pragma once

#include <cstdint>

#include "autograd/tape.h"

namespace tapeformer {

// The number by which ctc_loss() divides the sum of the losses. per_utterance selects the number of feasible
// utterances, and per_label selects the number of labels of these utterances. PyTorch's "mean" is different,
// because it divides the loss of each utterance by the number of its labels and then averages.
enum class CtcReduction { per_utterance, per_label };

struct CtcOptions {
  int64_t blank = 0;  // class of the blank
  CtcReduction reduction = CtcReduction::per_utterance;
};

struct CtcLoss {
  Tensor loss;    // scalar, recorded; 0 if no utterance is feasible
  Tensor losses;  // (batch,) negative log-likelihoods in nats, not recorded; 0 for infeasible utterances
  int64_t infeasible_count;  // number of utterances with too few frames for their labels
};

// Returns the loss of `logits` (batch, frames, classes), float32 or float64. The function applies log_softmax
// to the logits. The other arguments are
// - `frame_lengths` (batch,), int64 in [0, frames]; later logits are not read and have zero gradient,
// - `labels` (batch, longest), int64 classes other than the blank,
// - `label_lengths` (batch,), int64 in [0, longest]; later labels of a row are ignored.
// The lengths and labels must be on the CPU for logits on any device, so that ctc_loss() does not wait for
// the device.
//
// An utterance needs one frame per label, and one frame for the blank between each pair of equal adjacent
// labels. An utterance with fewer frames is infeasible and does not contribute to the loss or the gradient.
//
// The loss of an utterance does not depend on the number of threads or on the other utterances in the batch.
// float32 results are accurate over thousands of frames. If the probability of the labels is zero, the loss
// is infinite and its gradient is zero. If the logits of an utterance contain NaN, its loss is NaN.
//
// Throws ShapeError for wrong shapes, dtypes, lengths, labels and blanks. For a wrong length or label, the
// message contains the index of the utterance.
CtcLoss ctc_loss(const Tensor& logits, const Tensor& frame_lengths, const Tensor& labels,
                 const Tensor& label_lengths, const CtcOptions& options = {});

// Returns the number by which ctc_loss() divides the sum of the losses. Depending on `reduction`, the divisor
// is the number of feasible utterances or the number of labels of the feasible utterances. The arguments are
// the same as for ctc_loss().
int64_t compute_ctc_loss_divisor(const Tensor& frame_lengths, const Tensor& labels,
                                 const Tensor& label_lengths, CtcReduction reduction);

}  // namespace tapeformer
