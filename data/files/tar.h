// A reader of tar archives (POSIX ustar), which may be compressed with gzip. The reader returns only regular
// files and skips links, folders and devices. The reader removes the folders from the name of each file, so
// an archive cannot place files outside the target folder. Not thread-safe.
//
// The reader throws DataError with the path of the archive if the file is not a tar archive, is damaged or
// truncated, or is too large.
#pragma once

#include <optional>

#include "data/files/gzip.h"

namespace tapeformer {

struct TarMember {
  std::string name;  // last component of the path
  int64_t bytes = 0;
};

class TarReader {
 public:
  // Throws DataError if the unpacked archive exceeds `max_bytes`.
  TarReader(const std::filesystem::path& archive, int64_t max_bytes);

  // Returns the next regular file, or std::nullopt at the end of the archive. Skips unread bytes of the
  // previous file.
  std::optional<TarMember> next();
  // Reads up to `count` bytes of the current file. Returns the number of bytes read, which is less than
  // `count` only at the end of the file.
  size_t read(uint8_t* out, size_t count);

 private:
  void read_block(uint8_t* out);
  void skip_bytes(int64_t bytes);

  std::string archive_path_;
  GzipReader file_;
  int64_t remaining_bytes_;    // max_bytes minus the number of bytes that were read
  int64_t unread_bytes_ = 0;   // unread bytes of the current file
  int64_t padding_bytes_ = 0;  // bytes between the end of the current file and the next block
};

}  // namespace tapeformer
