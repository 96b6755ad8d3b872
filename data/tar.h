// Reading of tar archives (POSIX ustar), plain or gzip, for files whose names and sizes are known. Paths of
// an archive are never used as paths: links, folders and devices are skipped, and a file's name is the last
// part of its path. One thread.
//
// Errors: DataError names the archive if it is no tar archive, is damaged, ends early or is too large.
#pragma once

#include <optional>

#include "data/gzip.h"

namespace tapeformer {

struct TarMember {
  std::string name;  // without folders
  int64_t bytes = 0;
};

class TarReader {
 public:
  // Throws DataError after more than `max_bytes` unpacked bytes.
  TarReader(const std::filesystem::path& archive, int64_t max_bytes);

  // Returns the next regular file, nothing at the end. What was not read of the file before is skipped.
  std::optional<TarMember> next();
  // Reads up to `count` bytes of the current file; returns less only at its end.
  size_t read(uint8_t* out, size_t count);

 private:
  bool read_block(uint8_t* out);  // false: the archive ends here
  void skip(int64_t bytes);

  std::string archive_;
  UnpackedFile file_;
  int64_t left_;         // until max_bytes
  int64_t content_ = 0;  // bytes of the current member that were not read
  int64_t padding_ = 0;  // bytes after them, up to the next block
};

}  // namespace tapeformer
