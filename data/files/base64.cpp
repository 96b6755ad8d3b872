#include "data/files/base64.h"

#include <openssl/evp.h>

namespace tapeformer {

std::string encode_base64(std::string_view data) {
  std::string text(4 * ((data.size() + 2) / 3), '\0');
  EVP_EncodeBlock(reinterpret_cast<unsigned char*>(text.data()),
                  reinterpret_cast<const unsigned char*>(data.data()), static_cast<int>(data.size()));
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  std::string data(3 * ((text.size() + 3) / 4), '\0');
  const int size =
      EVP_DecodeBlock(reinterpret_cast<unsigned char*>(data.data()),
                      reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  if (size < 0) return std::nullopt;
  data.resize(static_cast<size_t>(size) - (text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0));
  if (encode_base64(data) != text) return std::nullopt;  // OpenSSL also accepts blanks and misplaced padding
  return data;
}

}  // namespace tapeformer
