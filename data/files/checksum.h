// CRC-32 checksums as in zlib and gzip. They detect damage of files, not forgery. All functions are
// thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/system/files.h"

namespace tapeformer {

// The size and the CRC-32 of a sequence of bytes.
struct Checksum {
  uint64_t bytes = 0;
  uint32_t crc32 = 0;

  // Appends bytes to the sequence.
  void append(const void* data, size_t size);
  // Appends a sequence, given by its checksum.
  void append(const Checksum& next);
  bool operator==(const Checksum&) const = default;
};

Checksum checksum_of(std::string_view text);

// Reads a range of a file into memory, in parallel, and returns the checksum of the range. Throws FileError.
Checksum read_with_checksum(const File& file, void* data, size_t size, size_t offset);

// Returns the CRC-32 as eight hexadecimal digits.
std::string crc32_text(uint32_t crc32);

}  // namespace tapeformer
