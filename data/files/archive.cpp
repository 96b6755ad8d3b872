#include "data/files/archive.h"

#include <archive.h>
#include <archive_entry.h>
#include <locale.h>

#include <utility>

#include "core/base/errors.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

constexpr size_t kArchiveBuffer = size_t{1} << 16;

// Sets the locale of this thread. libarchive converts names to the characters of the locale.
class Utf8Scope {
 public:
  Utf8Scope() {
    static const locale_t utf8 = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
    previous_ = uselocale(utf8);
  }
  ~Utf8Scope() { uselocale(previous_); }
  Utf8Scope(const Utf8Scope&) = delete;
  Utf8Scope& operator=(const Utf8Scope&) = delete;

 private:
  locale_t previous_;
};

}  // namespace

ArchiveReader::ArchiveReader(const std::filesystem::path& path, std::string name, int64_t max_bytes)
    : file_(open_data_file(path)),
      name_(std::move(name)),
      archive_(archive_read_new(), archive_read_free),
      max_bytes_(max_bytes) {
  if (!archive_) throw std::bad_alloc();
  archive_read_support_filter_gzip(archive_.get());
  archive_read_support_format_tar(archive_.get());
  archive_read_support_format_zip_seekable(archive_.get());
  if (archive_read_open_fd(archive_.get(), file_.descriptor(), kArchiveBuffer) != ARCHIVE_OK) fail();
}

void ArchiveReader::fail() const {
  const char* const problem = archive_error_string(archive_.get());
  throw DataError(name_ + ": cannot be unpacked: " + (problem ? problem : "damaged"));
}

std::optional<ArchiveMember> ArchiveReader::next() {
  const Utf8Scope scope;
  for (archive_entry* entry = nullptr;;) {
    const int status = archive_read_next_header(archive_.get(), &entry);
    if (status == ARCHIVE_EOF) return std::nullopt;
    if (status < ARCHIVE_WARN || status == ARCHIVE_RETRY) fail();
    member_bytes_ = archive_entry_size(entry);
    // libarchive decompresses the members of a compressed tar archive even if they are skipped.
    if (member_bytes_ > max_bytes_ - archive_filter_bytes(archive_.get(), 0))
      throw DataError(name_ + ": contains more bytes than expected");
    const char* const path = archive_entry_pathname(entry);
    if (path && archive_entry_filetype(entry) == AE_IFREG && !archive_entry_hardlink(entry))
      return ArchiveMember{std::filesystem::path(path).filename().string(), member_bytes_};
  }
}

void ArchiveReader::unpack(File& out) {
  Bytes buffer(kArchiveBuffer);
  for (int64_t left = member_bytes_;;) {
    const la_ssize_t count = archive_read_data(archive_.get(), buffer.data(), buffer.size());
    if (count < 0) fail();
    left -= count;
    if (left < 0 || (count == 0 && left > 0))
      throw DataError(name_ + ": a file has another size than its header says");
    if (count == 0) return;
    out.write(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace tapeformer
