// Decoding one token at a time: the recurrent form of an AutoregressiveModel (Katharopoulos et al. 2020,
// section 3.4).
//
// A Decoder borrows the model's weights, owns the attention states and every intermediate buffer of a batch,
// and is made once: a step allocates nothing. Its results equal those of the parallel form to rounding.
#pragma once

#include <memory>
#include <vector>

#include "models/autoregressive_model.h"
#include "ops/inference.h"

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
  int64_t state_bytes() const;

 private:
  // A layer of the encoder, its linear maps made ready, and what it remembers.
  struct Layer {
    const EncoderLayer& weights;
    DecodingLinear query, key, value, out, linear1, linear2;
    std::unique_ptr<AttentionState> state;
  };
  Layer make_layer(const EncoderLayer& weights, const StateShape& shape) const;
  void attend(const Layer& layer, const Tensor& x);
  void feed_forward(const Layer& layer, const Tensor& x);
  void embed(const Tensor& tokens);
  void run_layer(const Layer& layer);
  void run_reversible_layer(const Layer& layer);

  const AutoregressiveModel& model_;
  int64_t batch_;
  int64_t position_ = 0;
  std::vector<Layer> layers_;
  DecodingLinear predictor_;
  Tensor x_, y_, branch_;                   // (batch, width)
  Tensor axial_;                            // (max_length, width), or undefined
  Tensor other_, joined_, first_, second_;  // reversible: the second half; both as (batch, 2 width), in parts
  Tensor normalized_;                       // (batch, output_width)
  Tensor query_, key_, value_, attended_;   // (batch, heads, head_dim)
  Tensor query_flat_, key_flat_, value_flat_, attended_flat_;  // the same as (batch, width)
  Tensor hidden_, hidden_scratch_, output_;                    // (batch, feedforward), (batch, outputs)
};

}  // namespace tapeformer
