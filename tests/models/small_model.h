// A two-layer model small enough for finite differences.
#pragma once

#include "models/autoregressive_model.h"

namespace tapeformer::test {

inline AutoregressiveOptions small_options(const std::string& attention, Head head = Head::logistic_mixture) {
  AutoregressiveOptions options;
  options.encoder = {};
  options.encoder.layers = 2;
  options.encoder.heads = 2;
  options.encoder.head_dim = 4;
  options.encoder.feedforward = 12;
  options.encoder.attention = attention;
  options.encoder.attention_options = OptionValues(attention_kind(attention).options);
  if (attention == "lsh") options.encoder.attention_options.set("chunk_length", int64_t{4});
  options.head = head;
  options.vocabulary = head == Head::categorical ? 7 : 256;
  options.mixtures = 2;
  options.max_length = 11;
  return options;
}

// The same with what "Reformer" adds: reversible layers and axial positions.
inline AutoregressiveOptions reformer_options(const std::string& attention,
                                              Head head = Head::logistic_mixture) {
  AutoregressiveOptions options = small_options(attention, head);
  options.encoder.pre_norm = true;
  options.encoder.reversible = true;
  options.positions = Positions::axial;
  options.axial = {{3, 4}, {2, 6}};
  return options;
}

// Bytes (batch, length) below `vocabulary`, a pure function of the salt.
inline Tensor random_tokens(int64_t batch, int64_t length, int64_t vocabulary, uint64_t salt = 0) {
  const Tensor tokens = Tensor::empty({batch, length}, DType::uint8);
  const RandomStream stream(77, "tokens", salt);
  for (int64_t i = 0; i < tokens.numel(); ++i)
    tokens.data<uint8_t>()[i] =
        static_cast<uint8_t>(stream.below(static_cast<uint64_t>(i), static_cast<uint64_t>(vocabulary)));
  return tokens;
}

}  // namespace tapeformer::test
