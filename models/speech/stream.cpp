#include "models/speech/stream.h"

#include <algorithm>

#include "models/layers/positions.h"

namespace tapeformer {
namespace {

// The capacity of the encoder if the size of the attention states does not depend on the number of steps. No
// stream reaches this number of steps.
constexpr int64_t kEndless = int64_t{1} << 40;

const Encoder& require_causal_encoder(const SpeechModel& model) {
  if (!model.encoder || !model.options().causal)
    throw ConfigError("streaming recognition needs a causal Transformer");
  return *model.encoder;
}

}  // namespace

StreamingSpeechModel::StreamingSpeechModel(const SpeechModel& model, int64_t batch, int64_t capacity)
    : model_(model),
      batch_size_(batch),
      capacity_(capacity > 0 ? capacity : model.options().max_steps()),
      has_unlimited_capacity_(
          supports(model.options().encoder.attention, &AttentionCapabilities::has_constant_size_state)),
      subsampling_(model.subsampling, batch, model.head.weight),
      encoder_(require_causal_encoder(model), batch, has_unlimited_capacity_ ? kEndless : capacity_),
      projection_(model.input_projection->weight, model.input_projection->bias, batch),
      head_(model.head.weight, model.head.bias, batch) {
  const SpeechModelOptions& o = model.options();
  const Tensor& like = model.head.weight;
  logits_ = Tensor::zeros({batch, o.classes}, like.dtype(), like.device());
  if (!o.use_sinusoidal_positions) return;
  position_features_ = Tensor::empty({o.encoder.width()}, DType::float64);
  device_position_features_ = Tensor::empty({o.encoder.width()}, like.dtype(), like.device());
}

void StreamingSpeechModel::reset() {
  frame_count_ = 0;
  subsampling_.reset();
  encoder_.reset();
}

bool StreamingSpeechModel::push(const Tensor& frame) {
  const SpeechModelOptions& o = model_.options();
  check(frame.shape() == Shape{batch_size_, o.features}, "StreamingSpeechModel", "frame ", frame.shape(),
        " must be ", Shape{batch_size_, o.features});
  check(has_unlimited_capacity_ || frame_count_ / o.subsampling < capacity_, "StreamingSpeechModel", "frame ",
        frame_count_ + 1, " exceeds the maximum length, ", std::min(o.max_frames, capacity_ * o.subsampling));
  ++frame_count_;
  if (!subsampling_.push(frame)) return false;
  const Tensor& x = encoder_.input();
  projection_.forward_into(subsampling_.output(), Activation::none, x);
  if (o.use_sinusoidal_positions) {
    const int64_t width = position_features_.numel();
    write_sinusoids(frame_count_ / o.subsampling - 1, width, position_features_.data<double>());
    device_position_features_.copy_from(position_features_);
    x.add_scaled(device_position_features_.view({batch_size_, width}, {0, 1}));
  }
  head_.forward_into(encoder_.step(), Activation::none, logits_);
  return true;
}

}  // namespace tapeformer
