#include "data/files/tar.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "core/errors.h"

namespace tapeformer {
namespace {

// A tar header is one block of kBlock bytes. `offset` and `size` give the position of a field in the header,
// in bytes.
constexpr size_t kBlock = 512;
struct Field {
  size_t offset, size;
};
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8};
constexpr size_t kType = 156;
constexpr int64_t kMaxPathBytes = 1 << 16;

using Block = std::array<uint8_t, kBlock>;

std::string text_field(const Block& block, const Field& field) {
  const auto first = block.begin() + static_cast<std::ptrdiff_t>(field.offset);
  const auto last = first + static_cast<std::ptrdiff_t>(field.size);
  return {first, std::find(first, last, 0)};
}

// Returns the octal number in a field, or -1 if the field contains other text.
int64_t parse_number_field(const Block& block, const Field& field) {
  int64_t number = 0;
  bool any = false;
  for (const char c : text_field(block, field)) {
    if (c == ' ' && !any) continue;
    if (c == ' ') break;
    if (c < '0' || c > '7') return -1;
    number = 8 * number + (c - '0');  // cannot overflow, because the field has at most 12 digits
    any = true;
  }
  return any ? number : -1;
}

// Returns the sum of all bytes of a header, with the checksum field replaced by spaces.
int64_t compute_header_checksum(const Block& block) {
  int64_t sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i - kChecksum.offset < kChecksum.size ? ' ' : block[i];
  return sum;
}

// Returns the value of "path" in an extended header of the pax format, or an empty text. The records of such
// a header have the form "LENGTH KEY=VALUE\n", where LENGTH is the number of bytes of the whole record.
std::string find_pax_path(std::string_view header) {
  constexpr std::string_view kPath = "path=";
  while (!header.empty()) {
    size_t size = 0;
    const auto [end, error] = std::from_chars(header.data(), header.data() + header.size(), size);
    const auto digits = static_cast<size_t>(end - header.data());
    if (error != std::errc() || size > header.size() || size < digits + 2) break;
    const std::string_view record = header.substr(digits + 1, size - digits - 2);
    if (record.starts_with(kPath)) return std::string(record.substr(kPath.size()));
    header.remove_prefix(size);
  }
  return "";
}

}  // namespace

TarReader::TarReader(const std::filesystem::path& archive, int64_t max_bytes)
    : archive_path_(archive.string()), file_(archive), remaining_bytes_(max_bytes) {}

void TarReader::read_bytes(uint8_t* out, size_t count) {
  remaining_bytes_ -= static_cast<int64_t>(count);
  if (remaining_bytes_ < 0) throw DataError(archive_path_ + ": contains more bytes than expected");
  if (file_.read(out, count) != count) throw DataError(archive_path_ + ": the tar archive ends early");
}

void TarReader::skip_bytes(int64_t bytes) {
  std::array<uint8_t, 1 << 14> ignored;
  while (bytes > 0) {
    const auto count = std::min<int64_t>(bytes, ignored.size());
    read_bytes(ignored.data(), static_cast<size_t>(count));
    bytes -= count;
  }
}

// Returns the contents of a member that describes the next member.
std::string TarReader::read_text(int64_t bytes) {
  if (bytes > kMaxPathBytes) throw DataError(archive_path_ + ": is damaged: a header is too long");
  std::string text(static_cast<size_t>(bytes), '\0');
  read_bytes(reinterpret_cast<uint8_t*>(text.data()), text.size());
  unread_bytes_ = 0;
  return text;
}

std::optional<ArchiveMember> TarReader::next() {
  std::string long_path;  // path from an extension of the format, which replaces the path in the header
  for (Block block;;) {
    skip_bytes(unread_bytes_ + padding_bytes_);
    unread_bytes_ = padding_bytes_ = 0;
    read_bytes(block.data(), block.size());
    if (std::all_of(block.begin(), block.end(), [](uint8_t byte) { return byte == 0; })) return std::nullopt;
    const int64_t bytes = parse_number_field(block, kSize);
    if (parse_number_field(block, kChecksum) != compute_header_checksum(block) || bytes < 0)
      throw DataError(archive_path_ + ": is not a tar archive, or is damaged");
    unread_bytes_ = bytes;
    padding_bytes_ = (kBlock - bytes % kBlock) % kBlock;
    const char type = static_cast<char>(block[kType]);
    if (type == 'L') {  // GNU tar
      long_path = read_text(bytes);
      long_path.resize(std::min(long_path.find('\0'), long_path.size()));
      continue;
    }
    if (type == 'x') {  // pax
      long_path = find_pax_path(read_text(bytes));
      continue;
    }
    const std::string path = long_path.empty() ? text_field(block, kName) : std::exchange(long_path, {});
    if (type == '0' || type == '\0') return ArchiveMember{path.substr(path.rfind('/') + 1), bytes};
  }
}

void TarReader::unpack(File& out) {
  Bytes buffer(size_t{1} << 16);
  while (unread_bytes_ > 0) {
    const auto count = std::min(static_cast<size_t>(unread_bytes_), buffer.size());
    read_bytes(buffer.data(), count);
    unread_bytes_ -= static_cast<int64_t>(count);
    out.write(buffer.data(), count);
  }
}

}  // namespace tapeformer
