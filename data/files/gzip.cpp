#include "data/files/gzip.h"

#include <openssl/evp.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
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

Bytes read_start(const File& file) {
  constexpr size_t kStartBytes = 16;
  Bytes start(std::min(file.size(), kStartBytes));
  file.read_at(start.data(), start.size(), 0);
  return start;
}

// A reader of the unpacked contents of a plain or compressed file.
class UnpackingReader {
 public:
  explicit UnpackingReader(const std::filesystem::path& path)
      : file_(open_data_file(path)), stream_(nullptr, gzclose_r) {
    const Bytes start = read_start(file_);
    const std::string_view text = view_as_text(start, start.size());
    packed_ = is_gzip_start(text);
    if (is_compressed_start(text)) {
      other_.emplace(file_);
      return;
    }
    stream_.reset(gzdopen(dup(file_.descriptor()), "rb"));
    if (!stream_) throw std::bad_alloc();
    gzbuffer(stream_.get(), kBufferBytes);
  }

  // Returns an estimate of the number of unpacked bytes: for gzip, the size that the end of the file states,
  // which is that of the last member, and for other files the size of the file.
  size_t estimate_bytes() const {
    std::array<uint8_t, 4> end{};
    if (!packed_ || file_.size() < end.size()) return file_.size();
    file_.read_at(end.data(), end.size(), file_.size() - end.size());
    const size_t stated = end[0] | end[1] << 8 | end[2] << 16 | size_t{end[3]} << 24;
    return std::min(stated, kMaxRatio * file_.size());
  }

  // Reads up to `count` bytes. Returns the number of bytes read, which is less than `count` only at the end
  // of the contents.
  size_t read(uint8_t* out, size_t count) {
    if (other_) return other_->read(out, count);
    const size_t done = gzfread(out, 1, count, stream_.get());
    if (done < count) check_end();
    return done;
  }

 private:
  void check_end() const {
    int status = Z_OK;
    const char* const problem = gzerror(stream_.get(), &status);
    const std::string& name = file_.path();
    if (status == Z_BUF_ERROR) throw DataError(name + ": the gzip data ends early");
    if (status == Z_ERRNO) throw DataError(name + ": cannot be read: " + std::strerror(errno));
    if (status < 0) throw DataError(name + ": corrupt gzip data: " + problem);
  }

  File file_;
  std::unique_ptr<gzFile_s, int (*)(gzFile)> stream_;
  std::optional<CompressedReader> other_;  // if the file is compressed with another format than gzip
  bool packed_ = false;
};

}  // namespace

std::string Digest::to_string() const {
  return concat_text(bytes, " bytes with SHA-256 ", sha256);
}

bool is_compressed(std::string_view start) {
  return is_gzip_start(start) || is_compressed_start(start);
}

bool is_compressed(const std::filesystem::path& path) {
  const Bytes start = read_start(open_data_file(path));
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
