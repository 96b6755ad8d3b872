// Streaming recognition with the recurrent form of a causal SpeechModel, which takes one frame at a time.
// With linear attention, the memory use does not depend on the length of the utterance.
#pragma once

#include "models/encoder/encoder_step.h"
#include "models/speech/model.h"

namespace tapeformer {

class StreamingSpeechModel {
 public:
  // The model must outlive the stream. `capacity` is the maximum number of encoder steps between resets, or 0
  // for SpeechModelOptions::max_steps(). If all attention kinds have a state of constant size, the number of
  // steps is unlimited. Throws ConfigError if the model is not a causal Transformer, and
  // std::invalid_argument if an attention kind has no recurrent form.
  explicit StreamingSpeechModel(const SpeechModel& model, int64_t batch = 1, int64_t capacity = 0);

  // Takes one frame of every utterance, (batch, features), in the dtype of the model. Returns true if the
  // frame completes a step of the encoder. Allocates no memory. Throws ShapeError if the shape does not match
  // or if the frame exceeds the capacity.
  //
  // If a stream is longer than the training utterances, accuracy decreases. Use StreamDecoder
  // (models/speech/stream_decoder.h) for such streams.
  bool push(const Tensor& frame);
  // Returns the logits of the newest step, (batch, classes). The logits are valid until the next step.
  const Tensor& logits() const { return logits_; }

  void reset();
  int64_t frame_count() const { return frame_count_; }
  int64_t state_bytes() const { return encoder_.state_bytes(); }

 private:
  const SpeechModel& model_;
  int64_t batch_size_;
  int64_t capacity_;  // maximum number of steps if has_unlimited_capacity_ is false
  bool has_unlimited_capacity_;
  int64_t frame_count_ = 0;  // frames since the last reset
  StreamingSubsampling subsampling_;
  RecurrentEncoder encoder_;
  DecodingLinear projection_, head_;
  Tensor position_features_;  // sinusoids of the newest step, (width,) float64 on the CPU, or undefined
  Tensor device_position_features_;  // position_features_ in the dtype and on the device of the model
  Tensor logits_;                    // (batch, classes)
};

}  // namespace tapeformer
