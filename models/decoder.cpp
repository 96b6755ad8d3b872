#include "models/decoder.h"

namespace tapeformer {

Decoder::Decoder(const AutoregressiveModel& model, int64_t batch, int64_t capacity, WeightFormat format)
    : model_(model),
      batch_size_(batch),
      capacity_(capacity > 0 ? capacity : model.options().max_length),
      encoder_(model.encoder, batch, capacity_, format),
      predictor_(model.predictor.weight, model.predictor.bias, batch, format) {
  check(capacity_ <= model.options().position_limit(), "Decoder", "capacity ", capacity_,
        " exceeds the positions of the model, ", model.options().position_limit());
  const Tensor& like = model.predictor.weight;
  output_ = Tensor::empty({batch, model.options().output_width()}, like.dtype(), like.device());
  if (model.axial_positions) {
    const NoGradScope no_grad;
    added_positions_ = model.axial_positions->forward(model.options().max_length);
  } else if (model.learned_positions.defined()) {
    added_positions_ = detach(model.learned_positions);
  }
}

void Decoder::reset() {
  position_ = 0;
  encoder_.reset();
}

void Decoder::embed(const Tensor& tokens) {
  // `row` does not affect the result if the model has neither position features nor added positions. For such
  // a model, `row` is 0, because `position_` can exceed the number of rows of model_.position_features.
  const int64_t row = model_.position_features.size(1) == 0 && !added_positions_.defined() ? 0 : position_;
  embed_into(model_.value_embedding.weight, tokens, model_.position_features, row, encoder_.input(),
             added_positions_);
}

Tensor Decoder::read(const Tensor& tokens) {
  check(tokens.rank() == 2 && tokens.size(0) == batch_size_, "Decoder", "tokens ", tokens.shape(),
        " must be (", batch_size_, ", length)");
  check(position_ + tokens.size(1) <= capacity_, "Decoder", "position ", position_, " and ", tokens.size(1),
        " tokens are beyond the capacity");
  const NoGradScope no_grad;
  const Tensor encoded = encoder_.read(model_.embed(tokens, position_));
  position_ += tokens.size(1);
  return encoded;
}

const Tensor& Decoder::step(const Tensor& tokens) {
  check(tokens.shape() == Shape{batch_size_}, "Decoder", "tokens ", tokens.shape(), " must be ",
        Shape{batch_size_});
  check(position_ < capacity_, "Decoder", "position ", position_, " is beyond the capacity");
  embed(tokens);
  predictor_.forward_into(encoder_.step(), Activation::none, output_);
  ++position_;
  return output_;
}

}  // namespace tapeformer
