#include "models/decoder.h"

namespace tapeformer {

Decoder::Decoder(const AutoregressiveModel& model, int64_t batch)
    : model_(model),
      batch_(batch),
      encoder_(model.encoder, batch, model.options().max_length),
      predictor_(model.predictor.weight, model.predictor.bias, batch) {
  const Tensor& like = model.predictor.weight;
  output_ = Tensor::empty({batch, model.options().outputs()}, like.dtype(), like.device());
  if (model.axial_positions) {
    const NoGrad no_grad;
    axial_ = model.axial_positions->forward(model.options().max_length);
  }
}

void Decoder::reset() {
  position_ = 0;
  encoder_.reset();
}

// Writes the input of the encoder.
void Decoder::embed(const Tensor& tokens) {
  embed_into(model_.value_embedding.weight, tokens, model_.positions, position_, encoder_.input(), axial_);
}

const Tensor& Decoder::step(const Tensor& tokens) {
  check(tokens.shape() == Shape{batch_}, "Decoder", "tokens ", tokens.shape(), " must be ", Shape{batch_});
  embed(tokens);
  predictor_.into(encoder_.step(), Activation::none, output_);
  ++position_;
  return output_;
}

}  // namespace tapeformer
