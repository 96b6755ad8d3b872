#include "data/files/tar.h"

#include <algorithm>
#include <array>

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

}  // namespace

TarReader::TarReader(const std::filesystem::path& archive, int64_t max_bytes)
    : archive_path_(archive.string()), file_(archive), remaining_bytes_(max_bytes) {}

void TarReader::read_block(uint8_t* out) {
  remaining_bytes_ -= kBlock;
  if (remaining_bytes_ < 0) throw DataError(archive_path_ + ": contains more bytes than expected");
  if (file_.read(out, kBlock) != kBlock) throw DataError(archive_path_ + ": the tar archive ends early");
}

void TarReader::skip_bytes(int64_t bytes) {
  remaining_bytes_ -= bytes;
  if (remaining_bytes_ < 0) throw DataError(archive_path_ + ": contains more bytes than expected");
  std::array<uint8_t, 1 << 14> ignored;
  while (bytes > 0) {
    const auto wanted = std::min<int64_t>(bytes, ignored.size());
    if (file_.read(ignored.data(), static_cast<size_t>(wanted)) != static_cast<size_t>(wanted))
      throw DataError(archive_path_ + ": the tar archive ends early");
    bytes -= wanted;
  }
}

std::optional<TarMember> TarReader::next() {
  for (Block block;;) {
    skip_bytes(unread_bytes_ + padding_bytes_);
    unread_bytes_ = padding_bytes_ = 0;
    read_block(block.data());
    if (std::all_of(block.begin(), block.end(), [](uint8_t byte) { return byte == 0; })) return std::nullopt;
    const int64_t bytes = parse_number_field(block, kSize);
    if (parse_number_field(block, kChecksum) != compute_header_checksum(block) || bytes < 0)
      throw DataError(archive_path_ + ": is not a tar archive, or is damaged");
    unread_bytes_ = bytes;
    padding_bytes_ = (kBlock - bytes % kBlock) % kBlock;
    const char type = static_cast<char>(block[kType]);
    const std::string path = text_field(block, kName);
    if (type == '0' || type == '\0') return TarMember{path.substr(path.rfind('/') + 1), bytes};
  }
}

size_t TarReader::read(uint8_t* out, size_t count) {
  const size_t wanted = std::min(count, static_cast<size_t>(unread_bytes_));
  if (file_.read(out, wanted) != wanted) throw DataError(archive_path_ + ": the tar archive ends early");
  unread_bytes_ -= static_cast<int64_t>(wanted);
  remaining_bytes_ -= static_cast<int64_t>(wanted);
  if (remaining_bytes_ < 0) throw DataError(archive_path_ + ": contains more bytes than expected");
  return wanted;
}

}  // namespace tapeformer
