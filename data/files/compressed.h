// A reader of files that are compressed with xz, bzip2 or zstd. Internal to the readers of compressed files;
// other code uses data/files/gzip.h. Not thread-safe.
#pragma once

#include <cstdint>
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
  // The file must outlive the reader. Throws DataError with the path if the file is damaged or has no
  // contents. read() throws DataError if the file is damaged.
  explicit CompressedReader(const File& file);

  // Reads up to `count` unpacked bytes. Returns the number of bytes read, which is less than `count` only at
  // the end of the contents.
  size_t read(uint8_t* out, size_t count);

 private:
  [[noreturn]] void fail() const;  // with the message of libarchive

  std::string name_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  bool ended_ = false;
};

}  // namespace tapeformer
