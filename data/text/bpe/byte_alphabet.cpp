#include "data/text/bpe/byte_alphabet.h"

#include <array>

#include "core/system/utf8.h"

namespace tapeformer {
namespace {

constexpr size_t kBytes = 256, kCharacters = 0x144;  // U+0143 is the last character

constexpr bool is_printable(size_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr auto kCharacterOfByte = [] {
  std::array<char32_t, kBytes> table{};
  char32_t next = kBytes;
  for (size_t byte = 0; byte < kBytes; ++byte)
    table[byte] = is_printable(byte) ? static_cast<char32_t>(byte) : next++;
  return table;
}();

constexpr auto kByteOfCharacter = [] {
  std::array<int, kCharacters> table{};
  for (int& byte : table) byte = -1;
  for (size_t byte = 0; byte < kBytes; ++byte) table[kCharacterOfByte[byte]] = static_cast<int>(byte);
  return table;
}();

}  // namespace

std::string write_byte_character(uint8_t byte) {
  std::string text;
  append_utf8_character(kCharacterOfByte[byte], text);
  return text;
}

std::optional<std::string> decode_byte_characters(std::string_view piece) {
  std::string bytes;
  for (size_t at = 0; at < piece.size();) {
    const Utf8Character next = decode_first_utf8_character(piece.substr(at));
    if (next.bytes == 0 || next.code_point >= kCharacters || kByteOfCharacter[next.code_point] < 0)
      return std::nullopt;
    bytes += static_cast<char>(kByteOfCharacter[next.code_point]);
    at += next.bytes;
  }
  return bytes;
}

}  // namespace tapeformer
