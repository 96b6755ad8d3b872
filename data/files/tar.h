// A reader of tar archives (POSIX ustar and pax, GNU tar), which may be compressed with gzip. The reader
// skips links, folders and devices.
#pragma once

#include "data/files/archive.h"
#include "data/files/gzip.h"

namespace tapeformer {

class TarReader final : public ArchiveReader {
 public:
  // Throws DataError if the unpacked archive exceeds `max_bytes`.
  TarReader(const std::filesystem::path& archive, int64_t max_bytes);

  std::optional<ArchiveMember> next() override;
  void unpack(File& out) override;

 private:
  void read_bytes(uint8_t* out, size_t count);
  void skip_bytes(int64_t bytes);
  std::string read_text(int64_t bytes);

  std::string archive_path_;
  GzipReader file_;
  int64_t remaining_bytes_;    // max_bytes minus the number of bytes that were read
  int64_t unread_bytes_ = 0;   // unread bytes of the current file
  int64_t padding_bytes_ = 0;  // bytes between the end of the current file and the next block
};

}  // namespace tapeformer
