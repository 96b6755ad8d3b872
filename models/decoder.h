// The recurrent form of an AutoregressiveModel, which decodes one token at a time (Katharopoulos et al. 2020,
// section 3.4).
//
// A Decoder uses the weights of the model. The constructor allocates the states and buffers for a batch
// (models/encoder/encoder_step.h), so that step() allocates no memory unless the model has a compressed
// segment memory. The results of step() equal the results of AutoregressiveModel::forward() up to rounding.
#pragma once

#include "models/autoregressive_model.h"
#include "models/encoder/encoder_step.h"

namespace tapeformer {

class Decoder {
 public:
  // The model must outlive the decoder. `capacity` is the maximum number of tokens between two calls of
  // reset(). If it is 0, the capacity is max_length of the model. Throws std::invalid_argument if an
  // attention kind has no recurrent form, and ShapeError if the capacity exceeds position_limit() of the
  // model.
  // `format` is the format of the weights of the layers and of the predictor in step(); see DecodingLinear.
  Decoder(const AutoregressiveModel& model, int64_t batch, int64_t capacity = 0,
          WeightFormat format = WeightFormat::operand);

  // Reads one token of every sequence. `tokens` is (batch,) uint8 or int64. Returns the parameters of the
  // distribution of the next token, (batch, outputs), which are valid until the next step. Does not check
  // that tokens are in the vocabulary. Throws ShapeError if the decoder has read `capacity` tokens since the
  // last reset().
  const Tensor& step(const Tensor& tokens);
  // Reads the next tokens of every sequence, (batch, length), in the parallel form. Returns the inputs of the
  // predictor, (batch, length, encoder.output_width). The call allocates memory in proportion to the length.
  // The errors are those of step().
  Tensor read(const Tensor& tokens);
  // Starts new sequences.
  void reset();

  // Returns the number of tokens since the last reset.
  int64_t position() const { return position_; }
  int64_t batch_size() const { return batch_size_; }
  int64_t state_bytes() const { return encoder_.state_bytes(); }

 private:
  void embed(const Tensor& tokens);

  const AutoregressiveModel& model_;
  int64_t batch_size_, capacity_;
  int64_t position_ = 0;
  RecurrentEncoder encoder_;
  DecodingLinear predictor_;
  Tensor added_positions_;  // axial or learned positions (at least max_length, width), or undefined
  Tensor output_;           // (batch, outputs)
};

}  // namespace tapeformer
