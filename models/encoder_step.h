// The recurrent form of a causal Encoder: one position of every sequence of a batch at a time (Katharopoulos
// et al. 2020, section 3.4).
//
// It borrows the encoder's weights, owns the attention states and every intermediate buffer, and is made
// once: a step allocates nothing. Its results equal those of the parallel form to rounding.
#pragma once

#include <memory>
#include <vector>

#include "models/encoder.h"
#include "ops/inference.h"

namespace tapeformer {

class EncoderStep {
 public:
  // The encoder must outlive the object. `capacity`: positions of the longest sequence. Throws
  // std::invalid_argument when the attention kind has no recurrent form.
  EncoderStep(const Encoder& encoder, int64_t batch, int64_t capacity);

  // Where the caller puts the next position's input, (batch, width), before each step.
  const Tensor& input() const { return x_; }
  // Takes the input in; returns the normalised result, (batch, output_width), valid until the next step.
  const Tensor& step();
  void reset();
  int64_t state_bytes() const;

 private:
  // A layer of the encoder, its linear maps made ready, and what it remembers.
  struct Layer {
    const EncoderLayer& weights;
    DecodingLinear query, key, value, out, linear1, linear2;
    std::unique_ptr<AttentionState> state;
  };
  static Layer make_layer(const EncoderLayer& weights, const StateShape& shape);
  void attend(const Layer& layer, const Tensor& x);
  void feed_forward(const Layer& layer, const Tensor& x);
  void run_layer(const Layer& layer);
  void run_reversible_layer(const Layer& layer);

  const Encoder& encoder_;
  std::vector<Layer> layers_;
  Tensor x_, y_, branch_;                   // (batch, width)
  Tensor other_, joined_, first_, second_;  // reversible: the second half; both as (batch, 2 width), in parts
  Tensor normalized_;                       // (batch, output_width)
  Tensor query_, key_, value_, attended_;   // (batch, heads, head_dim)
  Tensor query_flat_, key_flat_, value_flat_, attended_flat_;  // the same as (batch, width)
  Tensor hidden_, hidden_scratch_;                             // (batch, feedforward)
};

}  // namespace tapeformer
