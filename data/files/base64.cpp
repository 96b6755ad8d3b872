#include "data/files/base64.h"

#include <cstdint>

namespace tapeformer {
namespace {

constexpr std::string_view kBase64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string encode_base64(std::string_view data) {
  std::string text;
  for (size_t at = 0; at < data.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (at + i < data.size() ? static_cast<uint8_t>(data[at + i]) : 0U);
    for (size_t i = 0; i < 4; ++i)
      text += at + i <= data.size() ? kBase64Digits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string data;
  uint32_t bits = 0, count = 0;
  for (const char c : text) {
    const size_t digit = kBase64Digits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    data += static_cast<char>(bits >> count & 0xFF);
  }
  return data;
}

}  // namespace tapeformer
