// Fewer steps than frames: what turns the frames of speech into the steps of an encoder. Either neighbours
// lie side by side, or convolutions look at three frames each and make one step of two, once for each factor
// of 2 (as in front of the encoders of ESPnet and wav2vec). Both give frames / factor steps, and step t of
// the factor f knows no frame after t f + f - 1, so that both serve while somebody speaks.
#pragma once

#include <memory>
#include <vector>

#include "core/frames.h"
#include "models/layers/layers.h"
#include "ops/inference.h"

namespace tapeformer {

enum class SubsamplingKind { stack, conv };

struct SubsamplingOptions {
  SubsamplingKind kind = SubsamplingKind::stack;
  int64_t factor = 1;  // 1, 2 or 4
  int64_t features = 0;
  int64_t channels = 0;  // of convolutions

  bool convolves() const { return kind == SubsamplingKind::conv && factor > 1; }
  int64_t output_width() const { return convolves() ? channels : factor * features; }
};

class Subsampling final : public Module {
 public:
  // Throws ConfigError for another factor.
  explicit Subsampling(const SubsamplingOptions& options);

  // x (batch, frames, features); frame_lengths (batch,) int64 on the CPU. Result (batch, steps,
  // output_width). Frames that do not fill a step are dropped.
  Tensor forward(const Tensor& x, const Tensor& frame_lengths) const;
  // Steps of each utterance, (batch,) int64. Throws ShapeError for lengths that do not fit.
  Tensor steps(const Tensor& frame_lengths, int64_t batch, int64_t frames) const;

  const SubsamplingOptions& options() const { return options_; }

  std::vector<std::unique_ptr<Conv1d>> layers;  // of kind conv, one for each factor of 2

 private:
  SubsamplingOptions options_;
};

// The same frame by frame. It owns its buffers: a frame allocates nothing.
class SubsamplingStep {
 public:
  // The module must outlive the object. Buffers are of the dtype and device of `like`.
  SubsamplingStep(const Subsampling& subsampling, int64_t batch, const Tensor& like);

  // Takes one frame of every utterance, (batch, features). True when it completes a step.
  bool push(const Tensor& frame);
  // The newest step, (batch, output_width), valid until the next one.
  const Tensor& step() const { return layers_.empty() ? window_ : layers_.back().output; }
  void reset();

 private:
  struct Layer {
    DecodingLinear map;
    Tensor window;  // (batch, 3 * in): the frame before a pair, and the pair
    Tensor output;  // (batch, channels)
    int64_t taken;  // of the pair
  };
  static bool push(Layer& layer, const Tensor& frame);

  int64_t factor_;
  std::vector<Layer> layers_;
  Tensor window_;      // (batch, factor * features), where nothing convolves
  int64_t taken_ = 0;  // of the window
};

}  // namespace tapeformer
