#include "data/files/compressed.h"

#include <archive.h>
#include <archive_entry.h>

#include <new>

#include "core/base/errors.h"

namespace tapeformer {

bool is_compressed_start(std::string_view start) {
  constexpr std::string_view kXz("\xFD\x37zXZ\0", 6), kZstd("\x28\xB5\x2F\xFD", 4);
  // The level of compression stands between the mark of bzip2 and the mark of its first block or of its end.
  constexpr std::string_view kBzip2("BZh"), kBlock("1AY&SY"), kEnd("\x17\x72\x45\x38\x50\x90");
  if (start.starts_with(kXz) || start.starts_with(kZstd)) return true;
  return start.size() >= 10 && start.starts_with(kBzip2) &&
         (start.substr(4).starts_with(kBlock) || start.substr(4).starts_with(kEnd));
}

CompressedReader::CompressedReader(const File& file)
    : name_(file.path()), archive_(archive_read_new(), archive_read_free) {
  constexpr size_t kInputBytes = size_t{1} << 16;
  if (!archive_) throw std::bad_alloc();
  archive_read_support_filter_xz(archive_.get());
  archive_read_support_filter_bzip2(archive_.get());
  archive_read_support_filter_zstd(archive_.get());
  archive_read_support_format_raw(archive_.get());
  archive_entry* entry = nullptr;
  if (archive_read_open_fd(archive_.get(), file.descriptor(), kInputBytes) != ARCHIVE_OK) fail();
  // libarchive does not distinguish empty contents from a file that ends before its first bytes.
  if (archive_read_next_header(archive_.get(), &entry) != ARCHIVE_OK)
    throw DataError(name_ + ": cannot be unpacked: has no contents or is damaged");
  // libarchive returns the bytes of the file if the file is too short for its format.
  if (archive_filter_code(archive_.get(), 0) == ARCHIVE_FILTER_NONE)
    throw DataError(name_ + ": cannot be unpacked: truncated");
}

void CompressedReader::fail() const {
  const char* const problem = archive_error_string(archive_.get());
  throw DataError(name_ + ": cannot be unpacked: " + (problem ? problem : "damaged"));
}

size_t CompressedReader::read(uint8_t* out, size_t count) {
  size_t done = 0;
  while (done < count && !ended_) {
    const la_ssize_t part = archive_read_data(archive_.get(), out + done, count - done);
    if (part < 0) fail();
    ended_ = part == 0;
    done += static_cast<size_t>(part);
  }
  return done;
}

}  // namespace tapeformer
