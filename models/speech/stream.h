// Streaming recognition with the recurrent form of a causal SpeechModel, which takes one frame at a time.
// With linear attention, the memory does not depend on the length of the utterance.
#pragma once

#include "models/encoder/encoder_step.h"
#include "models/speech/model.h"

namespace tapeformer {

class SpeechStream {
 public:
  // The model must outlive the stream. `capacity` is the maximum number of encoder steps between resets. If
  // `capacity` is 0, the maximum is SpeechModelOptions::max_steps(). There is no maximum if the attention
  // state has a constant size. Throws ConfigError if the model is not a causal Transformer, and
  // std::invalid_argument if its attention kind has no recurrent form.
  explicit SpeechStream(const SpeechModel& model, int64_t batch = 1, int64_t capacity = 0);

  // Takes one frame of every utterance, (batch, features) of the model's dtype. Returns true if the frame
  // completes a step of the encoder. If the model subsamples, only every second or fourth frame completes a
  // step. Allocates no memory. Throws ArgumentError if the shape does not match or if the frame exceeds the
  // capacity.
  //
  // Accuracy drops if the stream is longer than the training utterances. Use StreamDecoder
  // (models/speech/stream_decoder.h) for such streams.
  bool push(const Tensor& frame);
  // Returns the logits of the newest step, (batch, classes). The logits are valid until the next step.
  const Tensor& logits() const { return logits_; }

  void reset();
  int64_t frame_count() const { return frame_count_; }
  int64_t state_bytes() const { return encoder_.state_bytes(); }

 private:
  const SpeechModel& model_;
  int64_t batch_;
  int64_t capacity_;             // maximum number of steps, unless has_unlimited_capacity_
  bool has_unlimited_capacity_;  // whether the attention states take any number of steps
  int64_t frame_count_ = 0;      // frames since the last reset
  StreamingSubsampling subsampling_;
  EncoderStep encoder_;
  DecodingLinear projection_, head_;
  Tensor position_;         // sinusoids of the newest step, (width,) float64 on the CPU, or undefined
  Tensor device_position_;  // position_ in the dtype and on the device of the model
  Tensor logits_;           // (batch, classes)
};

}  // namespace tapeformer
