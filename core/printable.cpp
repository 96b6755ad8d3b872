#include "core/printable.h"

#include <cstdint>

namespace tapeformer {
namespace {

struct Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: not valid UTF-8
};

// Decodes the first character of a non-empty text. Overlong forms, surrogates and codes above 0x10FFFF are
// invalid.
Character first_character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {};
  char32_t code = lead & (0x7F >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3F);
  }
  constexpr char32_t kMinCode[] = {0, 0, 0x80, 0x800, 0x10000};  // by the number of bytes
  const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kMinCode[bytes] || surrogate || code > 0x10FFFF) return {};
  return {code, bytes};
}

// Returns whether a character is a control character (C0, DEL, C1), a line or paragraph separator, or a
// bidirectional formatting character.
bool is_unsafe(char32_t code) {
  const auto within = [code](char32_t first, char32_t last) { return code >= first && code <= last; };
  return code < 0x20 || within(0x7F, 0x9F) || code == 0x061C || within(0x200E, 0x200F) ||
         within(0x2028, 0x202E) || within(0x2066, 0x2069);
}

std::string escape(char kind, uint32_t value, int digits) {
  std::string text = {'\\', kind};
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
  return text;
}

std::string escaped(std::string_view text, std::string_view kept) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Character character = first_character(text);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0)
      result += escape('x', static_cast<uint8_t>(text[0]), 2);
    else if (is_unsafe(character.code) && kept.find(text[0]) == std::string_view::npos)
      result += escape('u', character.code, 4);
    else
      result += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string printable(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string printable_line(std::string_view text) {
  return escaped(text, "");
}

std::string printable_message(std::string_view text) {
  std::string result;
  const std::string lines = printable(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    result += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size() && lines[i + 1] != ' ') result += "  ";
  }
  return result;
}

}  // namespace tapeformer
