// The recurrent form of an AutoregressiveModel, which decodes one token at a time (Katharopoulos et al. 2020,
// section 3.4).
//
// A Decoder borrows the weights of the model and owns the states and buffers of a batch
// (models/encoder/encoder_step.h), so that a step allocates no memory. The results equal the results of the
// parallel form up to rounding.
#pragma once

#include "models/autoregressive_model.h"
#include "models/encoder/encoder_step.h"

namespace tapeformer {

class Decoder {
 public:
  // The model must outlive the decoder. `capacity` is the maximum number of tokens between two calls of
  // reset(). If it is 0, the capacity is max_length of the model. Throws std::invalid_argument if an
  // attention kind has no recurrent form, and ArgumentError if the capacity exceeds position_limit() of the
  // model.
  Decoder(const AutoregressiveModel& model, int64_t batch, int64_t capacity = 0);

  // Takes one token of every sequence, (batch,) uint8 or int64. Returns the parameters of the distribution of
  // the next token, (batch, outputs), which are valid until the next step. Does not check that tokens are in
  // the vocabulary. Throws ArgumentError after `capacity` tokens.
  const Tensor& step(const Tensor& tokens);
  // Starts new sequences.
  void reset();

  // Returns the number of tokens since the last reset.
  int64_t position() const { return position_; }
  int64_t batch() const { return batch_; }
  int64_t state_bytes() const { return encoder_.state_bytes(); }

 private:
  void embed(const Tensor& tokens);

  const AutoregressiveModel& model_;
  int64_t batch_, capacity_;
  int64_t position_ = 0;
  EncoderStep encoder_;
  DecodingLinear predictor_;
  Tensor axial_positions_;  // axial positions (max_length, width); undefined unless PositionKind::axial
  Tensor output_;           // (batch, outputs)
};

}  // namespace tapeformer
