// The alphabet in which files of byte-level BPE write bytes: printable characters of Latin-1 stand for
// themselves, and the other 68 bytes are U+0100 to U+0143, in the order of the bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tapeformer {

// Returns the character of a byte as UTF-8.
std::string write_byte_character(uint8_t byte);

// Returns the bytes of a piece, or std::nullopt if a character is not in the alphabet.
std::optional<std::string> decode_byte_characters(std::string_view piece);

}  // namespace tapeformer
