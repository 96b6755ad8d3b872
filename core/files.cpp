#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tapeformer {
namespace {

constexpr size_t kLargestTransfer = size_t{1} << 30;  // Linux moves at most 2 GiB per call
constexpr mode_t kMode = 0666;                        // less the umask

// The path behind all links.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> text(::realpath(path.c_str(), nullptr), &std::free);
  if (!text) throw FileError("resolve", path);
  return text.get();
}

}  // namespace

FileError::FileError(const std::string& action, const std::string& path, int reason)
    : std::runtime_error("cannot " + action + " " + path + ": " + std::strerror(reason)), reason_(reason) {}

File::File(const std::string& path, int flags) : path_(path), descriptor_(-1) {
  do descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw FileError("open", path);
}

File::~File() {
  ::close(descriptor_);
}

void File::write(const void* data, size_t size) {
  auto bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t done = ::write(descriptor_, bytes, std::min(size, kLargestTransfer));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) throw FileError("write", path_);
    bytes += done;
    size -= static_cast<size_t>(done);
  }
}

void File::read_at(void* data, size_t size, size_t offset) const {
  auto bytes = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t done =
        ::pread(descriptor_, bytes, std::min(size, kLargestTransfer), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done == 0) errno = ENODATA;
    if (done <= 0) throw FileError("read", path_);
    bytes += done;
    size -= static_cast<size_t>(done);
    offset += static_cast<size_t>(done);
  }
}

size_t File::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0) throw FileError("stat", path_);
  if (!S_ISREG(status.st_mode)) {
    errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    throw FileError("read", path_);
  }
  return static_cast<size_t>(status.st_size);
}

void File::truncate(size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) throw FileError("truncate", path_);
}

void File::sync() {
  if (::fsync(descriptor_) != 0) throw FileError("write", path_);
}

std::string read_file(const std::string& path) {
  const File file(path, O_RDONLY);
  std::string text(file.size(), '\0');
  file.read_at(text.data(), text.size(), 0);
  return text;
}

void write_file_synced(const std::string& path, std::string_view text) {
  File file(path, O_WRONLY | O_CREAT | O_TRUNC);
  file.write(text.data(), text.size());
  file.sync();
}

void sync_folder(const std::string& path) {
  const File folder(path, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync folders and say so with EINVAL.
  if (::fsync(folder.descriptor()) != 0 && errno != EINVAL) throw FileError("sync", path);
}

void rename_path(const std::string& from, const std::string& to) {
  if (std::rename(from.c_str(), to.c_str()) != 0) throw FileError("rename " + from + " to", to);
}

void replace_file(const std::string& name, std::string_view text) {
  struct stat status;
  const bool exists = ::stat(name.c_str(), &status) == 0;
  if (exists && (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode) || S_ISFIFO(status.st_mode)))
    return File(name, O_WRONLY).write(text.data(), text.size());
  const std::string path = exists ? resolved(name) : name;
  // Two writers of one path must not share it.
  static std::atomic<int> serial{0};
  const std::string temporary = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(serial++);
  try {
    write_file_synced(temporary, text);
    rename_path(temporary, path);
  } catch (const FileError& error) {
    ::unlink(temporary.c_str());
    throw FileError("write", path, error.reason());
  }
  const size_t slash = path.rfind('/');
  sync_folder(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

FolderLock::FolderLock(const std::string& path) : folder_(path, O_RDONLY | O_DIRECTORY) {
  if (::flock(folder_.descriptor(), LOCK_EX | LOCK_NB) != 0) throw FileError("lock", path);
}

}  // namespace tapeformer
