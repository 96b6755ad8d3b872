// Lists of the registered attention kinds by capability, and functions that create a small attention or
// encoder.
#pragma once

#include "models/encoder/encoder_layer.h"

namespace tapeformer::test {

// Returns the names of the kinds whose capabilities satisfy the predicate. Kinds that tests register have
// names that start with "test-" and are left out.
template <class Predicate>
std::vector<std::string> kinds_with(Predicate predicate) {
  std::vector<std::string> names;
  for (const AttentionKind& kind : list_attention_kinds())
    if (!kind.name.starts_with("test-") && predicate(kind.capabilities)) names.push_back(kind.name);
  return names;
}
inline std::vector<std::string> causal_kinds() {
  return kinds_with([](const AttentionCapabilities& c) { return static_cast<bool>(c.causal); });
}
inline std::vector<std::string> recurrent_kinds() {
  return kinds_with([](const AttentionCapabilities& c) { return static_cast<bool>(c.recurrent); });
}
inline std::vector<std::string> length_mask_kinds() {
  return kinds_with([](const AttentionCapabilities& c) { return static_cast<bool>(c.length_masks); });
}
inline std::vector<std::string> reversible_kinds() {
  return kinds_with([](const AttentionCapabilities& c) { return c.causal && c.reversible; });
}

// Returns options of an attention kind for tests with short sequences. The values in
// AttentionKind::test_options replace the defaults of the kind.
inline OptionValues test_options(const std::string& attention) {
  const AttentionKind& kind = find_attention_kind(attention);
  return kind.make_options(kind.test_options);
}

// The maximum sequence length, in tokens, of the attention objects and encoders that this file creates.
constexpr int64_t kShortLength = 32;

// Creates attention of this kind with test_options(), two heads and head dimension 4. The parameters are
// initialised and have the dtype float64.
inline std::unique_ptr<Attention> make_short_attention(const std::string& kind, double dropout = 0) {
  auto attention = make_attention(kind, test_options(kind),
                                  {.heads = 2, .dim = 4, .max_length = kShortLength, .dropout = dropout});
  attention->initialize(1);
  attention->convert(DType::float64);
  return attention;
}

// Returns the options of a small encoder with layers of this kind.
inline EncoderOptions small_encoder(const std::string& attention) {
  return {.layers = 2,
          .heads = 2,
          .head_dim = 4,
          .feedforward = 16,
          .attention = {{attention, test_options(attention)}},
          .max_length = kShortLength};
}

}  // namespace tapeformer::test
