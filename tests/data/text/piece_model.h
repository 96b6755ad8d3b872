// Small SentencePiece models as other programs write them, for tests. The functions write the protocol
// buffers of sentencepiece_model.proto without the SentencePiece library.
#pragma once

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace tapeformer::test {

struct PieceModelOptions {
  std::vector<std::string> pieces;  // with U+2581 instead of spaces
  bool byte_fallback = false;       // tokens for all bytes
  bool add_dummy_prefix = true;     // a space before each line
  bool remove_extra_whitespaces = false;
  std::string character_map = {};  // the table of normalised characters
};

namespace piece_model {

inline std::string varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}
inline std::string number_field(int field, uint64_t value) {
  return varint(static_cast<uint64_t>(field) << 3) + varint(value);
}
inline std::string text_field(int field, const std::string& value) {
  return varint(static_cast<uint64_t>(field) << 3 | 2) + varint(value.size()) + value;
}
inline std::string piece(const std::string& text, int type) {
  const float score = -1;
  std::string bytes(sizeof score, '\0');
  std::memcpy(bytes.data(), &score, sizeof score);
  return text_field(
      1, text_field(1, text) + varint(2 << 3 | 5) + bytes + number_field(3, static_cast<uint64_t>(type)));
}

}  // namespace piece_model

// Returns a unigram model. The tokens are <unk>, <s>, </s>, the 256 bytes if options.byte_fallback is true,
// and the pieces, which all have the same probability.
inline std::string make_piece_model(const PieceModelOptions& options) {
  using namespace piece_model;
  constexpr int kNormal = 1, kUnknown = 2, kControl = 3, kByte = 6;
  std::string model = piece("<unk>", kUnknown) + piece("<s>", kControl) + piece("</s>", kControl);
  for (int byte = 0; options.byte_fallback && byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof name, "<0x%02X>", static_cast<unsigned>(byte));
    model += piece(name, kByte);
  }
  for (const std::string& text : options.pieces) model += piece(text, kNormal);
  const std::string trainer = number_field(3, 1) + number_field(35, options.byte_fallback);
  const std::string map = options.character_map.empty() ? "" : text_field(2, options.character_map);
  const std::string normalizer = text_field(1, "identity") + map + number_field(3, options.add_dummy_prefix) +
                                 number_field(4, options.remove_extra_whitespaces) + number_field(5, 1);
  return model + text_field(2, trainer) + text_field(3, normalizer);
}

}  // namespace tapeformer::test
