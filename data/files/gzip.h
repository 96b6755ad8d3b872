// Files that may be packed with gzip, told by their first bytes and not by their name. No state; any thread.
//
// Errors: DataError names the file and says what was expected, for a missing file, a gzip stream that ends
// early, is corrupt or is followed by something else, and for contents beyond the bound.
#pragma once

#include <memory>
#include <string>

#include "data/files/file.h"

namespace tapeformer {

// A reader of the unpacked contents of a plain or gzip file. One thread.
class UnpackedFile {
 public:
  explicit UnpackedFile(const std::filesystem::path& path);
  ~UnpackedFile();

  // Reads up to `count` bytes; returns less only at the end.
  size_t read(uint8_t* out, size_t count);

 private:
  class Reader;
  std::unique_ptr<Reader> reader_;
};

// The unpacked contents, at most max_bytes of them: a small file cannot make the program allocate more.
Bytes read_unpacked(const std::filesystem::path& path, int64_t max_bytes);

// The first `count` unpacked bytes, fewer when the file is shorter.
Bytes read_unpacked_prefix(const std::filesystem::path& path, int64_t count);

// The size and SHA-256 of the unpacked contents of a file.
struct Digest {
  int64_t bytes = 0;
  std::string sha256;  // 64 hexadecimal digits

  bool operator==(const Digest&) const = default;
  std::string to_string() const;  // "10 bytes with SHA-256 0123…"
};
Digest digest_unpacked(const std::filesystem::path& path);

}  // namespace tapeformer
