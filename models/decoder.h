// Decoding one token at a time: the recurrent form of an AutoregressiveModel (Katharopoulos et al. 2020,
// section 3.4).
//
// A Decoder borrows the model's weights, owns the states and buffers of a batch (models/encoder_step.h), and
// is made once: a step allocates nothing. Its results equal those of the parallel form to rounding.
#pragma once

#include "models/autoregressive_model.h"
#include "models/encoder_step.h"

namespace tapeformer {

class Decoder {
 public:
  // The model must outlive the decoder. Throws std::invalid_argument when the attention kind has no recurrent
  // form.
  Decoder(const AutoregressiveModel& model, int64_t batch);

  // Takes token number position() of every sequence, (batch,) uint8 or int64 inside the vocabulary
  // (unchecked), and returns the parameters of the next token's distribution, (batch, outputs), valid until
  // the next step. Errors: ShapeError beyond the longest sequence.
  const Tensor& step(const Tensor& tokens);
  void reset();

  int64_t position() const { return position_; }
  int64_t batch() const { return batch_; }
  int64_t state_bytes() const { return encoder_.state_bytes(); }

 private:
  void embed(const Tensor& tokens);

  const AutoregressiveModel& model_;
  int64_t batch_;
  int64_t position_ = 0;
  EncoderStep encoder_;
  DecodingLinear predictor_;
  Tensor axial_;   // (max_length, width), or undefined
  Tensor output_;  // (batch, outputs)
};

}  // namespace tapeformer
