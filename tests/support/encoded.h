// Texts in UTF-16 and UTF-32 for tests.
#pragma once

#include <cstdint>
#include <string>

namespace tapeformer::test {

// Returns the bytes of a text in UTF-16 (Char = char16_t) or UTF-32 (Char = char32_t).
template <class Char>
std::string encoded(const std::basic_string<Char>& text, bool big_endian = false, bool has_mark = true) {
  std::string bytes;
  const auto append = [&](Char unit) {
    for (size_t i = 0; i < sizeof(Char); ++i) {
      const size_t shift = 8 * (big_endian ? sizeof(Char) - 1 - i : i);
      bytes += static_cast<char>(static_cast<uint32_t>(unit) >> shift & 0xFF);
    }
  };
  if (has_mark) append(0xFEFF);
  for (const Char unit : text) append(unit);
  return bytes;
}

}  // namespace tapeformer::test
