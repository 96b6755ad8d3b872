// Readers of files that may be compressed with gzip, xz, bzip2 or zstd. The format is detected by the first
// bytes, not by the name. All functions are thread-safe.
//
// Functions throw DataError with the path if the file is missing or too large. They also throw DataError if
// compressed data is truncated or corrupt. As for gzip, other data after gzip data is ignored.
#pragma once

#include <string>
#include <string_view>

#include "data/files/file.h"

namespace tapeformer {

// Returns whether the first bytes of a file or a stream are those of a compressed file.
bool is_compressed(std::string_view start);
bool is_compressed(const std::filesystem::path& path);

// Returns the unpacked contents. Throws DataError if the contents have more than `max_bytes`, so that a small
// file cannot use unlimited memory.
Bytes read_unpacked(const std::filesystem::path& path, int64_t max_bytes);

// Returns the first `count` unpacked bytes, or all bytes if the file has fewer.
Bytes read_unpacked_prefix(const std::filesystem::path& path, int64_t count);

// Size and SHA-256 of the unpacked contents of a file.
struct Digest {
  int64_t bytes = 0;
  std::string sha256;  // SHA-256 checksum in 64 hexadecimal digits

  bool operator==(const Digest&) const = default;
  std::string to_string() const;  // for example "10 bytes with SHA-256 0123…"
};
// Returns the digest of the unpacked contents of a plain or compressed file.
Digest compute_unpacked_digest(const std::filesystem::path& path);

}  // namespace tapeformer
