// CRC-32 checksums, as in zlib and gzip. A CRC-32 detects damaged files, but not manipulated files. All
// functions are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/system/files.h"

namespace tapeformer {

// Size and CRC-32 of a sequence of bytes.
struct Checksum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;

  // Appends `size` bytes at `data` to the sequence, and updates the size and the CRC-32.
  void append(const void* data, size_t size);
  // Appends a sequence of bytes whose checksum is `next`. The result is the checksum of both sequences
  // together.
  void append(const Checksum& next);
  bool operator==(const Checksum&) const = default;
};

Checksum compute_checksum(std::string_view text);

// Reads `size` bytes at `offset` of a file into `data`, in parallel. Returns the checksum of these bytes.
// Throws FileError.
Checksum read_with_checksum(const File& file, void* data, size_t size, size_t offset);

// Returns the CRC-32 as eight hexadecimal digits.
std::string format_crc32(uint32_t crc32);

}  // namespace tapeformer
