// Options and tokens for models that are small enough for finite differences.
#pragma once

#include "models/autoregressive_model.h"
#include "tests/models/kinds.h"

namespace tapeformer::test {

inline AutoregressiveModelOptions small_options(const std::string& attention,
                                                OutputHead head = OutputHead::logistic_mixture) {
  AutoregressiveModelOptions options;
  options.encoder = {};
  options.encoder.layers = 2;
  options.encoder.heads = 2;
  options.encoder.head_dim = 4;
  options.encoder.feedforward = 12;
  options.encoder.attention = {{attention, test_options(attention)}};
  options.head = head;
  options.vocabulary_size = head == OutputHead::categorical ? 7 : 256;
  options.mixtures = 2;
  options.max_length = 11;
  return options;
}

// Returns the options of a small model with reversible layers and axial positions, as in "Reformer".
inline AutoregressiveModelOptions reformer_options(const std::string& attention,
                                                   OutputHead head = OutputHead::logistic_mixture) {
  AutoregressiveModelOptions options = small_options(attention, head);
  options.encoder.pre_norm = true;
  options.encoder.reversible = true;
  options.position_kind = PositionKind::axial;
  options.axial_shape = {{3, 4}, {2, 6}};
  return options;
}

// Returns uint8 tokens (batch, length) in [0, vocabulary). They depend only on the arguments.
inline Tensor random_tokens(int64_t batch, int64_t length, int64_t vocabulary, uint64_t salt = 0) {
  const Tensor tokens = Tensor::empty({batch, length}, DType::uint8);
  const RandomStream stream(77, "tokens", salt);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data<uint8_t>()[i] = static_cast<uint8_t>(
        stream.uniform_below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary)));
  return tokens;
}

}  // namespace tapeformer::test
