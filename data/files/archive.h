// A reader of tar and zip archives. Tar archives may be compressed with gzip. The reader returns only regular
// files and removes the folders from the name of each file, so an archive cannot place files outside the
// target folder. Not thread-safe.
//
// Functions throw DataError with the name of the archive if the file is not such an archive, is damaged or
// truncated, or is too large.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/system/files.h"

struct archive;

namespace tapeformer {

struct ArchiveMember {
  std::string name;  // last component of the path
  int64_t bytes = 0;
};

class ArchiveReader {
 public:
  // Error messages contain `name`, for example the URL of the archive. Functions throw DataError instead of
  // unpacking more than `max_bytes`.
  ArchiveReader(const std::filesystem::path& path, std::string name, int64_t max_bytes);

  // Returns the next regular file, or std::nullopt at the end of the archive.
  std::optional<ArchiveMember> next();
  // Writes the contents of the current file to `out`. Call this function at most once for each file.
  void unpack(File& out);

 private:
  [[noreturn]] void fail() const;  // with the message of libarchive

  File file_;
  std::string name_;
  std::unique_ptr<archive, int (*)(archive*)> archive_;
  int64_t max_bytes_;
  int64_t member_bytes_ = 0;  // size of the current file
};

}  // namespace tapeformer
