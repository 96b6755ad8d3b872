// A reader of files that are compressed with xz, bzip2 or zstd. Internal to the readers of compressed files;
// other code uses data/files/gzip.h. Not thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "core/system/files.h"

struct archive;

namespace tapeformer {

// Returns whether the first bytes of a file are those of an xz, bzip2 or zstd file.
bool is_compressed_start(std::string_view start);

class CompressedReader {
 public:
  // Throws DataError with the path if the file cannot be opened, is damaged or has no contents. read() throws
  // DataError if the file is damaged.
  explicit CompressedReader(const std::filesystem::path& path);

  // Reads up to `count` unpacked bytes. Returns the number of bytes read, which is less than `count` only at
  // the end of the contents.
  size_t read(uint8_t* out, size_t count);

 private:
  [[noreturn]] void fail() const;  // with the message of libarchive

  File file_;
  std::string name_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  bool ended_ = false;
};

}  // namespace tapeformer
