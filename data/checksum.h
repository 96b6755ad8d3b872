// CRC-32 checksums, as zlib and gzip compute them. They find damage of files, not forgery. No state; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/files.h"

namespace tapeformer {

// The size and the CRC-32 of a sequence of bytes, which grows at its end.
struct Checksum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;

  void append(const void* data, size_t size);
  void append(const Checksum& next);  // of the bytes that follow
  bool operator==(const Checksum&) const = default;
};

Checksum checksum_of(std::string_view text);

// Reads a range of a file into memory, several parts at a time, and returns the checksum of the range. Throws
// FileError.
Checksum read_with_checksum(const File& file, void* data, size_t size, size_t offset);

// Eight hexadecimal digits.
std::string crc32_text(uint32_t crc32);

}  // namespace tapeformer
