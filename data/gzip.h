// Files that may be packed with gzip, told by their first bytes and not by their name. No state; any thread.
//
// Errors: DataError names the file and says what was expected, for a missing file, a gzip stream that ends
// early, is corrupt or is followed by something else, and for contents beyond the bound.
#pragma once

#include <string>

#include "data/file.h"

namespace tapeformer {

// The unpacked contents, at most max_bytes of them: a small file cannot make the program allocate more.
Bytes read_unpacked(const std::filesystem::path& path, int64_t max_bytes);

// The first `count` unpacked bytes, fewer when the file is shorter.
Bytes read_unpacked_prefix(const std::filesystem::path& path, int64_t count);

// Size and CRC-32 of the unpacked contents, read piece by piece.
struct Digest {
  int64_t bytes = 0;
  uint32_t crc32 = 0;

  bool operator==(const Digest&) const = default;
  std::string to_string() const;  // "10 bytes with CRC-32 0123abcd"
};
Digest digest_unpacked(const std::filesystem::path& path);

}  // namespace tapeformer
