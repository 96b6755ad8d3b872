#include "train/cli/text/input_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/base/errors.h"
#include "core/base/interruption.h"
#include "data/files/gzip.h"

namespace tapeformer {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr size_t kStartBytes = 16;  // enough for is_compressed() and detect_text_encoding()
// Another thread may handle a signal, which then does not end the waiting of poll().
constexpr int kInterruptionMilliseconds = 200;

}  // namespace

bool InputStream::is_named_by(const std::string& path) {
  std::error_code ignored;
  const auto status = std::filesystem::status(path, ignored);
  return path == kStandardInputName || std::filesystem::is_fifo(status) ||
         std::filesystem::is_character_file(status);
}

InputStream::InputStream(const std::string& path, size_t max_line_bytes)
    : name_(path), max_line_bytes_(max_line_bytes) {
  if (path == kStandardInputName) {
    name_ = "standard input";
    struct stat status {};
    if (fstat(STDIN_FILENO, &status) != 0 || S_ISDIR(status.st_mode))
      throw DataError(name_ + ": is closed or a folder");
    descriptor_ = STDIN_FILENO;
    return;
  }
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) throw DataError(path + ": cannot be opened: " + std::strerror(errno));
}

InputStream::~InputStream() {
  if (descriptor_ != STDIN_FILENO) close(descriptor_);
}

// Reads bytes that have arrived. Returns false if there are none: at the end of the stream, or without `wait`
// if none are waiting.
bool InputStream::fill(bool wait) {
  std::array<char, kReadBytes> bytes;
  while (!is_at_end_) {
    throw_if_interrupted();
    pollfd state{descriptor_, POLLIN, 0};
    const int ready = poll(&state, 1, wait ? kInterruptionMilliseconds : 0);
    if (ready == 0 && !wait) return false;
    if (ready == 0) continue;
    const ssize_t count = ready < 0 ? -1 : read(descriptor_, bytes.data(), bytes.size());
    if (count > 0) {
      line_end_ -= line_begin_;
      buffer_.erase(0, std::exchange(line_begin_, 0));
      buffer_.append(bytes.data(), static_cast<size_t>(count));
      if (start_.size() < kStartBytes) {
        start_.append(bytes.data(), std::min(static_cast<size_t>(count), kStartBytes - start_.size()));
        check_start();
      }
      return true;
    }
    // A stream whose other end is a terminal or a server can be non-blocking, and another process can have
    // read the bytes.
    if (count < 0 && errno != EINTR && errno != EAGAIN)
      throw DataError(name_ + ": cannot be read: " + std::strerror(errno));
    is_at_end_ = count == 0;
  }
  return false;
}

void InputStream::check_start() {
  if (is_compressed(std::string_view(start_)))
    throw DataError(name_ + ": a stream cannot be compressed; unpack it, for example with zcat");
  encoding_ = detect_text_encoding(start_);
}

// Moves line_end_ to the next LF, or to the end of the buffer. Returns whether the next line is in the
// buffer, or more than its maximum number of bytes.
bool InputStream::find_line_end() {
  line_end_ = std::min(buffer_.find('\n', line_end_), buffer_.size());
  return line_end_ < buffer_.size() || line_end_ - line_begin_ > max_line_bytes_;
}

bool InputStream::has_line() {
  while (!find_line_end())
    if (!fill(false)) return is_at_end_;
  return true;
}

std::optional<std::string> InputStream::read_line() {
  while (!find_line_end() && fill(true)) {
  }
  if (start_.empty()) throw DataError(name_ + ": no text: the size is 0 bytes");
  if (line_begin_ == buffer_.size()) return std::nullopt;
  ++line_count_;
  const size_t size = line_end_ - line_begin_;
  if (size > max_line_bytes_)
    throw DataError(concat_text(location(), ": the line has more than ", max_line_bytes_, " bytes"));
  std::string line = buffer_.substr(line_begin_, size);
  line_begin_ = line_end_ = std::min(line_end_ + 1, buffer_.size());
  if (line_count_ == 1 && encoding_.is_utf8()) line.erase(0, encoding_.mark_bytes);
  return line;
}

std::string InputStream::location() const {
  return concat_text(name_, ":", line_count_);
}

std::string InputStream::read_all(int64_t max_bytes) {
  while (fill(true)) {
    if (static_cast<int64_t>(buffer_.size()) > max_bytes)
      throw DataError(concat_text(name_, ": has more than ", max_bytes, " bytes"));
    // A device such as /dev/zero has no lines and no end.
    const size_t line = buffer_.rfind('\n') + 1;  // 0 if there is no line end
    if (buffer_.size() - line > max_line_bytes_)
      throw DataError(concat_text(name_, ": a line has more than ", max_line_bytes_, " bytes"));
  }
  return buffer_.substr(line_begin_);
}

}  // namespace tapeformer
