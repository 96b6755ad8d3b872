#include "data/file.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
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

void write_atomically(const std::filesystem::path& path, std::span<const uint8_t> bytes) {
  TemporaryFile file(path);
  file.append(bytes);
  file.finish();
}

}  // namespace tapeformer
