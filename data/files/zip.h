// A reader of zip archives (PKWARE APPNOTE 6.3.10). Supports stored and deflated members below 4 GiB.
#pragma once

#include <filesystem>

#include "data/files/archive.h"
#include "data/files/file.h"

namespace tapeformer {

class ZipReader final : public ArchiveReader {
 public:
  explicit ZipReader(const std::filesystem::path& archive);

  std::optional<ArchiveMember> next() override;
  void unpack(File& out) override;

 private:
  // The current entry of the central directory of the archive. Sizes and offsets are in bytes.
  struct Entry {
    std::string name;
    uint32_t method = 0, crc32 = 0;
    int64_t packed = 0, unpacked = 0, local_header = 0;
  };

  [[noreturn]] void fail(const std::string& problem) const;
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }
  int64_t find_end_record() const;
  int64_t number(int64_t at, int64_t count) const;
  std::string text(int64_t at, int64_t count) const;
  const uint8_t* find_data() const;

  std::string archive_path_;
  Bytes bytes_;
  int64_t at_ = 0, entries_left_ = 0;  // position of the next entry, and number of entries from there
  Entry entry_;
};

}  // namespace tapeformer
