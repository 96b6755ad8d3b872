#include "data/files/gzip.h"

#include <openssl/evp.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>

#include "core/base/errors.h"
#include "data/files/compressed.h"

namespace tapeformer {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 16;
constexpr size_t kMaxRatio = 16;  // of an estimate to the packed bytes, because files can state any size

bool is_gzip_start(std::string_view start) {
  return start.starts_with("\x1F\x8B");
}

// A reader of the unpacked contents of a plain or compressed file.
class UnpackingReader {
 public:
  explicit UnpackingReader(const std::filesystem::path& path) : name_(path.string()) {
    require_regular_file(path);  // opening a pipe would wait for a writer
    file_.open(path, std::ios::binary);
    if (!file_) throw DataError(name_ + ": cannot be opened: " + std::strerror(errno));
    fill();
    packed_ = is_gzip_start(unread());
    if (is_compressed_start(unread())) other_.emplace(path);
    if (packed_ && inflateInit2(&stream_, 16 + MAX_WBITS) != Z_OK) throw std::bad_alloc();
  }
  UnpackingReader(const UnpackingReader&) = delete;
  UnpackingReader& operator=(const UnpackingReader&) = delete;
  ~UnpackingReader() {
    if (packed_) inflateEnd(&stream_);
  }

  // Returns an estimate of the number of unpacked bytes: for gzip, the size that the end of the file states,
  // which is that of the last member, and for other files the size of the file.
  size_t estimate_bytes() const {
    const File file = open_data_file(name_);
    std::array<uint8_t, 4> end{};
    if (!packed_ || file.size() < end.size()) return file.size();
    file.read_at(end.data(), end.size(), file.size() - end.size());
    const size_t stated = end[0] | end[1] << 8 | end[2] << 16 | size_t{end[3]} << 24;
    return std::min(stated, kMaxRatio * file.size());
  }

  // Reads up to `count` bytes. Returns the number of bytes read, which is less than `count` only at the end
  // of the contents.
  size_t read(uint8_t* out, size_t count) {
    if (other_) return other_->read(out, count);
    size_t done = 0;
    while (done < count && !ended_) {
      const size_t wanted = std::min(count - done, kBufferBytes);
      done += packed_ ? inflate_some(out + done, wanted) : copy_some(out + done, wanted);
    }
    return done;
  }

 private:
  std::string_view unread() const {
    return {reinterpret_cast<const char*>(stream_.next_in), stream_.avail_in};
  }

  // Moves the unread bytes to the start of the input buffer and reads more bytes after them.
  void fill() {
    if (stream_.avail_in > 0) std::memmove(input_.data(), stream_.next_in, stream_.avail_in);
    file_.read(reinterpret_cast<char*>(input_.data() + stream_.avail_in),
               static_cast<std::streamsize>(input_.size() - stream_.avail_in));
    if (file_.bad()) throw DataError(name_ + ": cannot be read: " + std::strerror(errno));
    stream_.next_in = input_.data();
    stream_.avail_in += static_cast<uInt>(file_.gcount());
  }

  size_t copy_some(uint8_t* out, size_t count) {
    if (stream_.avail_in == 0) fill();
    const size_t taken = std::min<size_t>(count, stream_.avail_in);
    std::memcpy(out, stream_.next_in, taken);
    stream_.next_in += taken;
    stream_.avail_in -= static_cast<uInt>(taken);
    ended_ = taken == 0;
    return taken;
  }

  size_t inflate_some(uint8_t* out, size_t count) {
    if (stream_.avail_in == 0) fill();
    if (stream_.avail_in == 0)
      throw DataError(concat_text(name_, ": the gzip data ends early, after ", total_,
                                  " unpacked bytes; expected more and a checksum"));
    stream_.next_out = out;
    stream_.avail_out = static_cast<uInt>(count);
    const int status = inflate(&stream_, Z_NO_FLUSH);
    const size_t unpacked = count - stream_.avail_out;
    total_ += static_cast<int64_t>(unpacked);
    if (status == Z_STREAM_END)
      finish_member();
    else if (status != Z_OK)
      throw DataError(concat_text(name_, ": corrupt gzip data after ", total_, " unpacked bytes (",
                                  stream_.msg ? stream_.msg : zError(status), ")"));
    return unpacked;
  }

  // Prepares to read the next member of the gzip file, or sets ended_ if there is no next member. A gzip
  // file can consist of several concatenated members. Throws DataError if other data follows a member.
  void finish_member() {
    fill();
    ended_ = stream_.avail_in == 0;
    if (ended_) return;
    if (!is_gzip_start(unread()))
      throw DataError(name_ + ": other data follows the gzip data; expected the end of the file");
    inflateReset(&stream_);
  }

  std::string name_;
  std::ifstream file_;
  std::array<uint8_t, kBufferBytes> input_;
  z_stream stream_{};
  std::optional<CompressedReader> other_;  // if the file is compressed with another format than gzip
  bool packed_ = false;
  bool ended_ = false;
  int64_t total_ = 0;
};

}  // namespace

std::string Digest::to_string() const {
  return concat_text(bytes, " bytes with SHA-256 ", sha256);
}

bool is_compressed(std::string_view start) {
  return is_gzip_start(start) || is_compressed_start(start);
}

bool is_compressed(const std::filesystem::path& path) {
  constexpr size_t kStartBytes = 16;
  const File file = open_data_file(path);
  Bytes start(std::min<size_t>(file.size(), kStartBytes));
  file.read_at(start.data(), start.size(), 0);
  return is_compressed(view_as_text(start, start.size()));
}

Bytes read_unpacked(const std::filesystem::path& path, int64_t max_bytes) {
  UnpackingReader reader(path);
  Bytes bytes;
  size_t filled = 0;
  const size_t bound = static_cast<size_t>(max_bytes) + 1, estimate = reader.estimate_bytes() + 1;
  while (filled == bytes.size()) {
    if (filled == bound)
      throw DataError(
          concat_text(path.string(), ": expected at most ", max_bytes, " unpacked bytes, found more"));
    bytes.resize(std::min(filled == 0 ? estimate : std::max(2 * filled, kBufferBytes), bound));
    filled += reader.read(bytes.data() + filled, bytes.size() - filled);
  }
  bytes.resize(filled);
  return bytes;
}

Bytes read_unpacked_prefix(const std::filesystem::path& path, int64_t count) {
  UnpackingReader reader(path);
  Bytes bytes(static_cast<size_t>(count));
  bytes.resize(reader.read(bytes.data(), bytes.size()));
  return bytes;
}

Digest compute_unpacked_digest(const std::filesystem::path& path) {
  UnpackingReader reader(path);
  const std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> hash(EVP_MD_CTX_new(), EVP_MD_CTX_free);
  if (!hash || EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) != 1)
    throw std::runtime_error("OpenSSL cannot compute SHA-256");
  Bytes buffer(kBufferBytes);
  Digest digest;
  while (const size_t count = reader.read(buffer.data(), buffer.size())) {
    digest.bytes += static_cast<int64_t>(count);
    EVP_DigestUpdate(hash.get(), buffer.data(), count);
  }
  std::array<uint8_t, EVP_MAX_MD_SIZE> sum;
  unsigned size = 0;
  EVP_DigestFinal_ex(hash.get(), sum.data(), &size);
  for (unsigned i = 0; i < size; ++i)
    for (const int digit : {sum[i] >> 4, sum[i] & 15}) digest.sha256 += "0123456789abcdef"[digit];
  return digest;
}

}  // namespace tapeformer
