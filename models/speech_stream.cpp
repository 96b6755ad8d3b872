#include "models/speech_stream.h"

namespace tapeformer {
namespace {

const Encoder& causal_encoder(const SpeechModel& model) {
  if (!model.encoder || !model.options().causal)
    throw ConfigError("only a causal Transformer recognises speech while it comes");
  return *model.encoder;
}

}  // namespace

SpeechStream::SpeechStream(const SpeechModel& model, int64_t batch)
    : model_(model),
      batch_(batch),
      encoder_(causal_encoder(model), batch, model.options().max_steps()),
      projection_(model.input_projection->weight, model.input_projection->bias, batch),
      head_(model.head.weight, model.head.bias, batch) {
  const SpeechModelOptions& o = model.options();
  const Tensor& like = model.head.weight;
  stacked_ = Tensor::empty({batch, o.subsampling * o.features}, like.dtype(), like.device());
  logits_ = Tensor::zeros({batch, o.classes}, like.dtype(), like.device());
}

void SpeechStream::reset() {
  frames_ = 0;
  encoder_.reset();
}

bool SpeechStream::push(const Tensor& frame) {
  const SpeechModelOptions& o = model_.options();
  check(frame.shape() == Shape{batch_, o.features}, "SpeechStream", "frame ", frame.shape(), " must be ",
        Shape{batch_, o.features});
  check(frames_ / o.subsampling < o.max_steps(), "SpeechStream", "frame ", frames_,
        " is beyond the longest utterance, ", o.max_frames);
  const int64_t place = frames_ % o.subsampling;
  stacked_.view(frame.shape(), {stacked_.size(1), 1}, place * o.features).copy_from(frame);
  ++frames_;
  if (place + 1 < o.subsampling) return false;
  const int64_t step = frames_ / o.subsampling - 1, width = model_.positions.size(1);
  const Tensor& x = encoder_.input();
  projection_.into(stacked_, Activation::none, x);
  x.add_from(model_.positions.view({batch_, width}, {0, 1}, step * width));
  head_.into(encoder_.step(), Activation::none, logits_);
  return true;
}

}  // namespace tapeformer
