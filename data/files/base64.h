// Functions that encode and decode binary data as Base64 text (RFC 4648).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tapeformer {

std::string encode_base64(std::string_view data);
// Decodes a Base64 text. Returns std::nullopt if the text is not valid Base64 or lacks the required padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace tapeformer
