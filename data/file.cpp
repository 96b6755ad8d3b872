#include "data/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <utility>

#include "core/errors.h"

namespace tapeformer {
namespace {

[[noreturn]] void fail_to_write(const std::filesystem::path& path, int error) {
  throw std::runtime_error(concat_text("cannot write ", path.string(), ": ", std::strerror(error)));
}

// The descriptor and the name of a file in the making; both go unless the file is finished.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::filesystem::path& target) : target_(target) {
    static std::atomic<int> serial{0};
    path_ = target;
    path_ += concat_text(".tmp-", getpid(), "-", serial++);
    descriptor_ = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail_to_write(target_, errno);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!finished_) unlink(path_.c_str());
  }

  void append(std::span<const uint8_t> bytes) {
    while (!bytes.empty()) {
      const ssize_t written = write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail_to_write(target_, errno);
      bytes = bytes.subspan(static_cast<size_t>(written));
    }
  }
  void finish() {
    if (fsync(descriptor_) != 0) fail_to_write(target_, errno);
    if (close(std::exchange(descriptor_, -1)) != 0) fail_to_write(target_, errno);
    if (rename(path_.c_str(), target_.c_str()) != 0) fail_to_write(target_, errno);
    finished_ = true;
  }

 private:
  std::filesystem::path target_;
  std::filesystem::path path_;
  int descriptor_ = -1;
  bool finished_ = false;
};

}  // namespace

void require_regular_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw DataError(path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(status)) throw DataError(path.string() + ": is not a regular file");
}

Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes) {
  require_regular_file(path);
  const auto size = static_cast<int64_t>(std::filesystem::file_size(path));
  if (size > max_bytes)
    throw DataError(concat_text(path.string(), ": holds ", size, " bytes, expected at most ", max_bytes));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(path.string() + ": cannot be opened: " + std::strerror(errno));
  Bytes bytes(static_cast<size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  if (file.gcount() != size)
    throw DataError(concat_text(path.string(), ": read ", file.gcount(), " bytes, expected ", size));
  return bytes;
}

void write_atomically(const std::filesystem::path& path, std::span<const uint8_t> bytes) {
  TemporaryFile file(path);
  file.append(bytes);
  file.finish();
}

}  // namespace tapeformer
