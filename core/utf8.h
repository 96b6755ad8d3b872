// Decoding and validation of UTF-8 (RFC 3629). No state.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tapeformer {

struct Utf8Character {
  char32_t code = 0;
  size_t bytes = 0;  // 0: not valid
};

// Decodes the first character of a text that is not empty. Truncated characters, overlong forms, surrogates
// and codes above 0x10FFFF are not valid.
Utf8Character first_character(std::string_view text);

// Returns the offset of the first byte that is not valid, or npos.
size_t find_invalid_utf8(std::string_view text);

// Appends the UTF-8 form of a valid code.
void append_utf8(char32_t code, std::string& text);

}  // namespace tapeformer
