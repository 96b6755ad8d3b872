#include "core/system/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

namespace tapeformer {
namespace {

constexpr size_t kLargestTransfer = size_t{1} << 30;  // bytes; Linux transfers at most 2 GiB per call
constexpr mode_t kMode = 0666;                        // permissions of new files before the umask is applied
constexpr std::string_view kTemporaryMark = ".tmp-";
constexpr size_t kTemporaryDigits = 16;  // number of random digits in a temporary name
constexpr size_t kLongestStem = 200;     // maximum number of bytes copied from the file name

// Returns the path with all symbolic links resolved.
std::string resolved(const std::string& path) {
  const std::unique_ptr<char, decltype(&std::free)> text(::realpath(path.c_str(), nullptr), &std::free);
  if (!text) throw FileError("resolve", path);
  return text.get();
}

}  // namespace

FileError::FileError(const std::string& action, const std::string& path, int error_number)
    : FileError(action, path, error_number, std::strerror(error_number)) {}

FileError::FileError(const std::string& action, const std::string& path, int error_number,
                     const std::string& text)
    : std::runtime_error("cannot " + action + " " + path + ": " + text), error_number_(error_number) {}

File::File(const std::string& path, int flags) : path_(path), descriptor_(-1) {
  do descriptor_ = ::open(path.c_str(), flags | O_CLOEXEC, kMode);
  while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) throw FileError("open", path);
}

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
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
  if (S_ISDIR(status.st_mode)) throw FileError("read", path_, EISDIR);
  if (!S_ISREG(status.st_mode)) throw FileError("read", path_, EINVAL, "expected a regular file");
  return static_cast<size_t>(status.st_size);
}

void File::truncate(size_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) throw FileError("truncate", path_);
}

void File::sync() {
  if (::fsync(descriptor_) != 0) throw FileError("write", path_);
}

File open_regular_file(const std::string& path) {
  // With O_NONBLOCK, open() does not wait for the writer of a pipe.
  File file(path, O_RDONLY | O_NONBLOCK);
  file.size();
  return file;
}

std::string read_file(const std::string& path, size_t max_bytes) {
  const File file = open_regular_file(path);
  const size_t size = file.size();
  if (size > max_bytes)
    throw FileError(
        "read", path, EFBIG,
        "it has " + std::to_string(size) + " bytes, expected at most " + std::to_string(max_bytes));
  std::string text(size, '\0');
  file.read_at(text.data(), text.size(), 0);
  return text;
}

std::string make_temporary_path(const std::string& name) {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, 0) != static_cast<ssize_t>(sizeof number))
    throw FileError("create a temporary name for", name);
  char digits[kTemporaryDigits + 1];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(number));
  const size_t slash = name.rfind('/'), start = slash == std::string::npos ? 0 : slash + 1;
  // `name` is truncated, because file systems limit the length of names.
  return name.substr(0, start) + "." + name.substr(start, kLongestStem) + std::string(kTemporaryMark) +
         digits;
}

bool is_temporary_name(std::string_view name) {
  const size_t mark = name.rfind(kTemporaryMark);
  if (mark == std::string_view::npos) return false;
  const std::string_view digits = name.substr(mark + kTemporaryMark.size());
  return digits.size() == kTemporaryDigits &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

void sync_directory(const std::string& path) {
  const File folder(path, O_RDONLY | O_DIRECTORY);
  // Some network file systems cannot sync folders and return EINVAL.
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
  const std::string path = exists ? resolved(name) : name, temporary = make_temporary_path(path);
  bool created = false;
  try {
    File file(temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
    created = true;
    file.write(text.data(), text.size());
    file.sync();
    rename_path(temporary, path);
  } catch (const FileError& error) {
    if (created) ::unlink(temporary.c_str());
    throw FileError("write", path, error.error_number());
  }
  const size_t slash = path.rfind('/');
  sync_directory(slash == std::string::npos ? "." : path.substr(0, slash + 1));
}

FolderLock::FolderLock(const std::string& path) : handle_(path, O_RDONLY | O_DIRECTORY) {
  if (::flock(handle_.descriptor(), LOCK_EX | LOCK_NB) != 0) throw FileError("lock", path);
}

}  // namespace tapeformer
