// Base64 (RFC 4648), for binary data in JSON.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tapeformer {

std::string encode_base64(std::string_view data);
// Returns the data, or std::nullopt if the text is not Base64 with padding.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace tapeformer
