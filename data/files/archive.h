// The interface of readers of archives. A reader returns only regular files and removes the folders from the
// name of each file, so an archive cannot place files outside the target folder. Not thread-safe.
//
// Readers throw DataError with the path of the archive if the file is not an archive of the format, is
// damaged or truncated, or is too large.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/system/files.h"

namespace tapeformer {

struct ArchiveMember {
  std::string name;  // last component of the path
  int64_t bytes = 0;
};

class ArchiveReader {
 public:
  ArchiveReader() = default;
  ArchiveReader(const ArchiveReader&) = delete;
  ArchiveReader& operator=(const ArchiveReader&) = delete;
  virtual ~ArchiveReader() = default;

  // Returns the next regular file, or std::nullopt at the end of the archive.
  virtual std::optional<ArchiveMember> next() = 0;
  // Writes the contents of the current file to `out`. Call this function at most once for each file.
  virtual void unpack(File& out) = 0;
};

}  // namespace tapeformer
