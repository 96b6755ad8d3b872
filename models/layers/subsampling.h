// Subsampling of speech frames to encoder steps. A step is the concatenation of neighbouring frames or the
// result of convolutions. There is one convolution with kernel size 3 and stride 2 for each factor of 2 in
// the subsampling factor (as in ESPnet and wav2vec). The number of steps is frames / factor, rounded down. A
// step does not depend on later frames, so both kinds of subsampling work in streaming recognition.
#pragma once

#include <memory>
#include <vector>

#include "core/base/frames.h"
#include "models/layers/layers.h"
#include "ops/inference.h"

namespace tapeformer {

enum class SubsamplingKind { stack, conv };

struct SubsamplingOptions {
  SubsamplingKind kind = SubsamplingKind::stack;
  int64_t factor = 1;  // frames per step: 1, 2 or 4
  int64_t features = 0;
  int64_t channels = 0;  // output channels of convolutions

  bool uses_convolution() const { return kind == SubsamplingKind::conv && factor > 1; }
  int64_t output_width() const { return uses_convolution() ? channels : factor * features; }
};

class Subsampling final : public Module {
 public:
  // Throws OptionError if the factor is not 1, 2 or 4.
  explicit Subsampling(const SubsamplingOptions& options);

  // Maps x (batch, frames, features) with frame_lengths (batch,) int64 on the CPU to (batch, steps,
  // output_width). Drops the last frames if they do not fill a step.
  Tensor forward(const Tensor& x, const Tensor& frame_lengths) const;
  // Returns the number of steps of each utterance, (batch,) int64. If `frame_lengths` is undefined, every
  // utterance has `frames` frames. Throws ShapeError if `frame_lengths` is not (batch,) int64 or contains
  // a length that is not in [0, frames].
  Tensor count_steps(const Tensor& frame_lengths, int64_t batch, int64_t frames) const;

  const SubsamplingOptions& options() const { return options_; }

  std::vector<std::unique_ptr<Conv1dRelu>> layers;  // convolutions; empty for SubsamplingKind::stack

 private:
  SubsamplingOptions options_;
};

// The streaming form of Subsampling, which takes one frame at a time. push() allocates no memory.
class StreamingSubsampling {
 public:
  // `subsampling` must outlive the object. The buffers have the dtype and device of `like`.
  StreamingSubsampling(const Subsampling& subsampling, int64_t batch, const Tensor& like);

  // Takes one frame of every utterance, (batch, features). Returns true if the frame completes a step.
  bool push(const Tensor& frame);
  // Returns the features of the newest step, (batch, output_width). The result is valid until the next
  // call of push().
  const Tensor& output() const { return layers_.empty() ? window_ : layers_.back().output; }
  void reset();

 private:
  struct Layer {
    DecodingLinear convolution;
    // The three input frames of a step, (batch, 3 * in). The first frame of the window is the last frame of
    // the previous step.
    Tensor window;
    Tensor output;             // (batch, channels)
    int64_t pair_frame_count;  // number of frames since the last step, 0 or 1
  };
  static bool push(Layer& layer, const Tensor& frame);

  int64_t factor_;
  std::vector<Layer> layers_;
  Tensor window_;                   // (batch, factor * features), for SubsamplingKind::stack
  int64_t window_frame_count_ = 0;  // number of frames in window_
};

}  // namespace tapeformer
