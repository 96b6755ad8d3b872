#include "data/files/zip.h"

#include <zlib.h>

#include <algorithm>
#include <memory>

#include "core/errors.h"

namespace tapeformer {
namespace {

constexpr uint32_t kEndMagic = 0x06054B50, kEntryMagic = 0x02014B50, kLocalMagic = 0x04034B50;
constexpr int64_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30, kMaxComment = 65535;
constexpr uint32_t kStored = 0, kDeflated = 8;
constexpr size_t kZipBuffer = size_t{1} << 16;

// Passes the contents of a deflated member to `write` in parts. Returns false if the data is damaged.
template <class Write>
bool inflate_member(const uint8_t* data, int64_t packed, Write&& write) {
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) throw std::bad_alloc();
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = const_cast<Bytef*>(data);
  stream.avail_in = static_cast<uInt>(packed);
  Bytes buffer(kZipBuffer);
  for (int status = Z_OK; status != Z_STREAM_END;) {
    stream.next_out = buffer.data();
    stream.avail_out = static_cast<uInt>(buffer.size());
    status = inflate(&stream, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END) return false;
    write(buffer.data(), buffer.size() - stream.avail_out);
  }
  return true;
}

}  // namespace

ZipReader::ZipReader(const std::filesystem::path& archive)
    : archive_path_(archive.string()), bytes_(read_bytes(archive, INT64_C(1) << 32)) {
  const int64_t end = find_end_record();
  at_ = number(end + 16, 4);
  entries_left_ = number(end + 10, 2);
}

void ZipReader::fail(const std::string& problem) const {
  throw DataError(archive_path_ + ": " + problem);
}

int64_t ZipReader::find_end_record() const {
  for (int64_t at = size() - kEndBytes; at >= std::max<int64_t>(0, size() - kEndBytes - kMaxComment); --at)
    if (number(at, 4) == kEndMagic) return at;
  fail("is not a zip archive, or is truncated");
}

// Returns the little-endian number of `count` bytes at offset `at`.
int64_t ZipReader::number(int64_t at, int64_t count) const {
  if (at < 0 || at + count > size()) fail("ends early");
  int64_t value = 0;
  for (int64_t i = count - 1; i >= 0; --i) value = value << 8 | bytes_[static_cast<size_t>(at + i)];
  return value;
}

std::string ZipReader::text(int64_t at, int64_t count) const {
  if (at + count > size()) fail("ends early");
  return {bytes_.begin() + at, bytes_.begin() + at + count};
}

std::optional<ArchiveMember> ZipReader::next() {
  while (entries_left_ > 0) {
    if (number(at_, 4) != kEntryMagic) fail("is damaged: an entry of its directory is missing");
    const int64_t name_bytes = number(at_ + 28, 2);
    const std::string path = text(at_ + kEntryBytes, name_bytes);
    entry_ = {path.substr(path.rfind('/') + 1),
              static_cast<uint32_t>(number(at_ + 10, 2)),
              static_cast<uint32_t>(number(at_ + 16, 4)),
              number(at_ + 20, 4),
              number(at_ + 24, 4),
              number(at_ + 42, 4)};
    at_ += kEntryBytes + name_bytes + number(at_ + 30, 2) + number(at_ + 32, 2);
    --entries_left_;
    if (!entry_.name.empty()) return ArchiveMember{entry_.name, entry_.unpacked};  // empty: a folder
  }
  return std::nullopt;
}

const uint8_t* ZipReader::find_data() const {
  const int64_t at = entry_.local_header;
  if (number(at, 4) != kLocalMagic) fail("is damaged: a header is missing");
  const int64_t first = at + kLocalBytes + number(at + 26, 2) + number(at + 28, 2);
  if (first + entry_.packed > size()) fail("ends early");
  return bytes_.data() + first;
}

void ZipReader::unpack(File& out) {
  if (entry_.method != kStored && entry_.method != kDeflated)
    fail(concat_text(entry_.name, " is packed with the method ", entry_.method, ", which is not supported"));
  const uint8_t* const data = find_data();
  int64_t written = 0;
  uLong crc = crc32(0, nullptr, 0);
  const auto write = [&](const uint8_t* part, size_t count) {
    written += static_cast<int64_t>(count);
    if (written > entry_.unpacked) fail(entry_.name + " has more bytes than its header says");
    crc = crc32_z(crc, part, count);
    out.write(part, count);
  };
  bool good = true;
  if (entry_.method == kStored)
    write(data, static_cast<size_t>(entry_.packed));
  else
    good = inflate_member(data, entry_.packed, write);
  if (!good || written != entry_.unpacked || crc != entry_.crc32) fail(entry_.name + " is damaged");
}

}  // namespace tapeformer
