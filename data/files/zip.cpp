#include "data/files/zip.h"

#include <zlib.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/errors.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

constexpr uint32_t kEndMagic = 0x06054B50, kEntryMagic = 0x02014B50, kLocalMagic = 0x04034B50;
constexpr int64_t kEndBytes = 22, kEntryBytes = 46, kLocalBytes = 30, kMaxComment = 65535;
constexpr uint32_t kStored = 0, kDeflated = 8;
constexpr size_t kZipBuffer = size_t{1} << 16;

class ZipArchive {
 public:
  explicit ZipArchive(const std::filesystem::path& path)
      : name_(path.string()), bytes_(read_bytes(path, INT64_C(1) << 32)) {}

  // An entry of the central directory of the archive. Sizes and offsets are in bytes.
  struct Member {
    uint32_t method = 0, crc32 = 0;
    int64_t packed = 0, unpacked = 0, local_header = 0;
  };

  Member find(const std::string& wanted) const {
    const int64_t end = end_record();
    int64_t at = number(end + 16, 4);
    for (int64_t count = number(end + 10, 2); count > 0; --count) {
      if (number(at, 4) != kEntryMagic) fail("is damaged: an entry of its directory is missing");
      const int64_t name_bytes = number(at + 28, 2);
      if (text(at + kEntryBytes, name_bytes) == wanted)
        return {static_cast<uint32_t>(number(at + 10, 2)), static_cast<uint32_t>(number(at + 16, 4)),
                number(at + 20, 4), number(at + 24, 4), number(at + 42, 4)};
      at += kEntryBytes + name_bytes + number(at + 30, 2) + number(at + 32, 2);
    }
    fail("contains no file " + wanted);
  }

  const uint8_t* data_of(const Member& member) const {
    const int64_t at = member.local_header;
    if (number(at, 4) != kLocalMagic) fail("is damaged: a header is missing");
    const int64_t first = at + kLocalBytes + number(at + 26, 2) + number(at + 28, 2);
    if (first + member.packed > size()) fail("ends early");
    return bytes_.data() + first;
  }

  [[noreturn]] void fail(const std::string& problem) const { throw DataError(name_ + ": " + problem); }

 private:
  int64_t size() const { return static_cast<int64_t>(bytes_.size()); }

  int64_t end_record() const {
    for (int64_t at = size() - kEndBytes; at >= std::max<int64_t>(0, size() - kEndBytes - kMaxComment); --at)
      if (number(at, 4) == kEndMagic) return at;
    fail("is not a zip archive, or is truncated");
  }

  // Returns the little-endian number of `count` bytes at offset `at`.
  int64_t number(int64_t at, int64_t count) const {
    if (at < 0 || at + count > size()) fail("ends early");
    int64_t value = 0;
    for (int64_t i = count - 1; i >= 0; --i) value = value << 8 | bytes_[static_cast<size_t>(at + i)];
    return value;
  }

  std::string text(int64_t at, int64_t count) const {
    if (at + count > size()) fail("ends early");
    return {bytes_.begin() + at, bytes_.begin() + at + count};
  }

  std::string name_;
  Bytes bytes_;
};

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

void unpack_zip_member(const std::filesystem::path& archive, const std::string& name, int64_t max_bytes,
                       File& out) {
  const ZipArchive zip(archive);
  const ZipArchive::Member member = zip.find(name);
  if (member.unpacked > max_bytes)
    zip.fail(concat_text(name, " has ", member.unpacked, " bytes, expected at most ", max_bytes));
  if (member.method != kStored && member.method != kDeflated)
    zip.fail(concat_text(name, " is packed with the method ", member.method, ", which is not supported"));
  const uint8_t* const data = zip.data_of(member);
  int64_t written = 0;
  uLong crc = crc32(0, nullptr, 0);
  const auto write = [&](const uint8_t* part, size_t size) {
    written += static_cast<int64_t>(size);
    if (written > member.unpacked) zip.fail(name + " has more bytes than its header says");
    crc = crc32_z(crc, part, size);
    out.write(part, size);
  };
  bool good = true;
  if (member.method == kStored)
    write(data, static_cast<size_t>(member.packed));
  else
    good = inflate_member(data, member.packed, write);
  if (!good || written != member.unpacked || crc != member.crc32) zip.fail(name + " is damaged");
}

}  // namespace tapeformer
