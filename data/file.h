// Whole files as bytes, of at most an expected size. No state; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tapeformer {

using Bytes = std::vector<uint8_t>;

// The first `size` bytes as the text that core/files.h writes.
inline std::string_view as_text(const Bytes& bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

// The contents of a regular file as they are (data/gzip.h unpacks). Throws DataError, naming the file, when
// it is missing, cannot be read or holds more than max_bytes.
Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes);

// Throws DataError, naming the file, when it is missing or no regular file.
void require_regular_file(const std::filesystem::path& path);

}  // namespace tapeformer
