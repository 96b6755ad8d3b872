#include "core/system/printable.h"

#include <cstdint>

#include "core/system/utf8.h"

namespace tapeformer {
namespace {

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
    const Utf8Character character = decode_first_utf8_character(text);
    const size_t bytes = character.bytes == 0 ? 1 : character.bytes;
    if (character.bytes == 0)
      result += escape('x', static_cast<uint8_t>(text[0]), 2);
    else if (is_unsafe(character.code_point) && kept.find(text[0]) == std::string_view::npos)
      result += escape('u', character.code_point, 4);
    else
      result += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return result;
}

}  // namespace

std::string escape_text(std::string_view text) {
  return escaped(text, "\n\t");
}

std::string escape_line(std::string_view text) {
  return escaped(text, "");
}

std::string escape_message(std::string_view text) {
  std::string result;
  const std::string lines = escape_text(text);
  for (size_t i = 0; i < lines.size(); ++i) {
    result += lines[i];
    if (lines[i] == '\n' && i + 1 < lines.size() && lines[i + 1] != ' ') result += "  ";
  }
  return result;
}

std::string quote_shell_word(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=.,:/@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace tapeformer
