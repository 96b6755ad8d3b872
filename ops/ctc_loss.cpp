#include "ops/ctc_loss.h"

#include <algorithm>
#include <limits>

#include "core/base/frames.h"
#include "core/dispatch.h"
#include "ops/detail/tensors.h"
#include "ops/kernels/ctc_loss.h"
#include "ops/lengths.h"
#include "ops/row_loss.h"
#include "ops/view.h"

namespace tapeformer {
namespace {

constexpr const char* kOp = "ctc_loss";

void check_labels(const int64_t* labels, int64_t count, int64_t utterance, int64_t classes, int64_t blank) {
  for (int64_t i = 0; i < count; ++i) {
    check(labels[i] >= 0 && labels[i] < classes, kOp, "label ", labels[i], " at index ", i, " of utterance ",
          utterance, " is not in [0, ", classes, ")");
    check(labels[i] != blank, kOp, "label ", labels[i], " at index ", i, " of utterance ", utterance,
          " is the blank");
  }
}

struct FeasiblePairs {
  Tensor mask;  // (batch,) uint8: 1 for feasible utterances
  int64_t utterances = 0, labels = 0;

  int64_t count(CtcReduction reduction) const {
    return reduction == CtcReduction::per_utterance ? utterances : labels;
  }
};

// Finds the utterances that have enough frames for their labels. The arguments must be contiguous.
FeasiblePairs find_feasible_pairs(const Tensor& frame_lengths, const Tensor& labels,
                                  const Tensor& label_lengths) {
  const int64_t batch = labels.size(0), longest = labels.size(1);
  FeasiblePairs result{.mask = Tensor::zeros({batch}, DType::uint8)};
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t* const own = labels.data<int64_t>() + b * longest;
    const int64_t count = label_lengths.data<int64_t>()[b];
    if (frame_lengths.data<int64_t>()[b] < count_min_ctc_steps({own, static_cast<size_t>(count)})) continue;
    result.mask.data<uint8_t>()[b] = 1;
    ++result.utterances;
    result.labels += count;
  }
  return result;
}

}  // namespace

// Computes loss and gradient in one pass of the kernel.
CtcLoss ctc_loss(const Tensor& logits, const Tensor& frame_lengths, const Tensor& labels,
                 const Tensor& label_lengths, const CtcOptions& options) {
  check_defined(kOp, "logits", logits, "labels", labels);
  check(logits.rank() == 3 && logits.size(2) > 0, kOp, "logits must be (batch, frames, classes), not ",
        logits.shape());
  const int64_t batch = logits.size(0), classes = logits.size(2), blank = options.blank;
  check(labels.rank() == 2 && labels.size(0) == batch, kOp, "labels must be (batch, longest), not ",
        labels.shape(), " for logits ", logits.shape());
  check(labels.dtype() == DType::int64, kOp, "labels must be int64, not ", name_of(labels.dtype()));
  check(blank >= 0 && blank < classes, kOp, "blank ", blank, " is not in [0, ", classes, ")");
  const Tensor frame_counts = prepare_lengths(kOp, "frame length", frame_lengths, batch, logits.size(1));
  const Tensor label_counts = prepare_lengths(kOp, "label length", label_lengths, batch, labels.size(1));
  const Tensor x = contiguous(logits), targets = contiguous(labels);
  for (int64_t b = 0; b < batch; ++b)
    check_labels(targets.data<int64_t>() + b * targets.size(1), label_counts.data<int64_t>()[b], b, classes,
                 blank);
  const FeasiblePairs feasible = find_feasible_pairs(frame_counts, targets, label_counts);
  const double scale = 1 / static_cast<double>(std::max<int64_t>(feasible.count(options.reduction), 1));
  const Tensor losses = Tensor::empty({batch}, x.dtype(), x.device());
  const bool wanted = is_recording() && requires_grad(x);
  const Tensor gradient = wanted ? Tensor::empty_like(x) : Tensor{};
  const auto to_device = [&](const Tensor& tensor) { return tensor.to(x.device()); };
  const Tensor moved_frames = to_device(frame_counts), moved_targets = to_device(targets),
               moved_labels = to_device(label_counts), feasible_mask = to_device(feasible.mask);
  dispatch_float_or_double(kOp, x, [&]<class T>(auto backend) {
    ctc_loss(backend, CtcShape{batch, x.size(1), classes, targets.size(1), blank}, x.data<T>(),
             moved_frames.data<int64_t>(), moved_targets.data<int64_t>(), moved_labels.data<int64_t>(),
             feasible_mask.data<uint8_t>(), static_cast<T>(scale), losses.data<T>(),
             get_data_or_null<T>(gradient));
  });
  const Tensor weights = Tensor::full({batch}, scale, x.dtype(), x.device());
  const Tensor loss =
      record(kOp, compute_weighted_sum(kOp, losses, weights), {&x},
             [gradient](const Tensor& g) { return Gradients{multiply_by_scalar(kOp, gradient, g)}; });
  return {loss, losses, batch - feasible.utterances};
}

int64_t compute_ctc_loss_divisor(const Tensor& frame_lengths, const Tensor& labels,
                                 const Tensor& label_lengths, CtcReduction reduction) {
  check_defined("compute_ctc_loss_divisor", "frame_lengths", frame_lengths, "labels", labels);
  check(labels.rank() == 2 && labels.dtype() == DType::int64, "compute_ctc_loss_divisor",
        "labels must be int64 (batch, longest), not ", name_of(labels.dtype()), " ", labels.shape());
  const int64_t batch = labels.size(0);
  const Tensor frames = prepare_lengths("compute_ctc_loss_divisor", "frame length", frame_lengths, batch,
                                        std::numeric_limits<int64_t>::max());
  const Tensor counts =
      prepare_lengths("compute_ctc_loss_divisor", "label length", label_lengths, batch, labels.size(1));
  return find_feasible_pairs(frames, contiguous(labels), counts).count(reduction);
}

}  // namespace tapeformer
