// Decoding and encoding of UTF-8 (RFC 3629). All functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tapeformer {

inline constexpr std::string_view kReplacementText = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Character {
  char32_t code_point = 0;
  size_t bytes = 0;  // 0: not valid UTF-8
};

// Decodes the first character of a non-empty text. If the bytes of the character are not valid UTF-8, `bytes`
// of the result is 0. Overlong forms, surrogates and codes above 0x10FFFF are invalid.
Utf8Character decode_first_utf8_character(std::string_view text);

// Appends the UTF-8 bytes of a code point of at most 0x10FFFF to `text`.
void append_utf8_character(char32_t code_point, std::string& text);

// Returns the number of characters in a UTF-8 text. If the text starts in the middle of a character, this
// character is not counted.
int64_t count_utf8_characters(std::string_view text);

}  // namespace tapeformer
