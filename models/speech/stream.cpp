#include "models/speech/stream.h"

#include <algorithm>

#include "models/layers/positions.h"

namespace tapeformer {
namespace {

// Capacity, in encoder steps, of attention states whose size does not depend on the capacity. The number is
// larger than every attention window.
constexpr int64_t kEndless = int64_t{1} << 40;

const Encoder& require_causal_encoder(const SpeechModel& model) {
  if (!model.encoder || !model.options().causal)
    throw ConfigError("streaming recognition needs a causal Transformer");
  return *model.encoder;
}

}  // namespace

SpeechStream::SpeechStream(const SpeechModel& model, int64_t batch, int64_t capacity)
    : model_(model),
      batch_(batch),
      capacity_(capacity > 0 ? capacity : model.options().max_steps()),
      has_unlimited_capacity_(
          supports(model.options().encoder.attention, &AttentionCapabilities::has_constant_state)),
      subsampling_(model.subsampling, batch, model.head.weight),
      encoder_(require_causal_encoder(model), batch, has_unlimited_capacity_ ? kEndless : capacity_),
      projection_(model.input_projection->weight, model.input_projection->bias, batch),
      head_(model.head.weight, model.head.bias, batch) {
  const SpeechModelOptions& o = model.options();
  const Tensor& like = model.head.weight;
  logits_ = Tensor::zeros({batch, o.classes}, like.dtype(), like.device());
  if (!o.use_sinusoidal_positions) return;
  position_ = Tensor::empty({o.encoder.width()}, DType::float64);
  device_position_ = Tensor::empty({o.encoder.width()}, like.dtype(), like.device());
}

void SpeechStream::reset() {
  frame_count_ = 0;
  subsampling_.reset();
  encoder_.reset();
}

bool SpeechStream::push(const Tensor& frame) {
  const SpeechModelOptions& o = model_.options();
  check(frame.shape() == Shape{batch_, o.features}, "SpeechStream", "frame ", frame.shape(), " must be ",
        Shape{batch_, o.features});
  check(has_unlimited_capacity_ || frame_count_ / o.subsampling < capacity_, "SpeechStream", "frame ",
        frame_count_ + 1, " exceeds the maximum length, ", std::min(o.max_frames, capacity_ * o.subsampling));
  ++frame_count_;
  if (!subsampling_.push(frame)) return false;
  const Tensor& x = encoder_.input();
  projection_.forward_into(subsampling_.step(), Activation::none, x);
  if (o.use_sinusoidal_positions) {
    const int64_t width = position_.numel();
    write_sinusoids(frame_count_ / o.subsampling - 1, width, position_.data<double>());
    device_position_.copy_from(position_);
    x.add_scaled(device_position_.view({batch_, width}, {0, 1}));
  }
  head_.forward_into(encoder_.step(), Activation::none, logits_);
  return true;
}

}  // namespace tapeformer
