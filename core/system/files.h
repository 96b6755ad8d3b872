// Functions that write, sync and replace files so that a crash or a full disk does not destroy data. If a
// system call fails, the functions throw FileError, whose message contains the path and the reason. The
// functions follow symbolic links, so use them for files that the user names. For files that the program
// names, use core/system/folder.h, which does not follow links.
#pragma once

#include <cerrno>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tapeformer {

class FileError : public std::runtime_error {
 public:
  // The message is "cannot ACTION PATH: TEXT". The default of `text` is strerror(error_number).
  FileError(const std::string& action, const std::string& path, int error_number = errno);
  FileError(const std::string& action, const std::string& path, int error_number, const std::string& text);
  int error_number() const { return error_number_; }

 private:
  int error_number_;
};

// Owner of an open file descriptor, which the destructor closes.
class File {
 public:
  // Opens a file with the flags of open(2) and O_CLOEXEC. Throws FileError.
  File(const std::string& path, int flags);
  // Takes ownership of an open descriptor. Error messages contain `path`.
  File(int descriptor, std::string path) : path_(std::move(path)), descriptor_(descriptor) {}
  File(File&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  void write(const void* data, size_t size);
  // Reads bytes at an offset. Throws FileError if the file ends before offset + size.
  void read_at(void* data, size_t size, size_t offset) const;
  size_t size() const;  // throws if the file is not a regular file
  void truncate(size_t size);
  // Writes the data to the disk. Call sync() before a rename, so that the file is complete under its new name
  // even after a crash.
  void sync();

 private:
  std::string path_;
  int descriptor_;
};

// Opens a regular file for reading. Throws FileError if the path is not a regular file. Does not block if the
// path is a pipe.
File open_regular_file(const std::string& path);
// Returns the contents of a regular file. Throws FileError if the file has more than `max_bytes` bytes.
std::string read_file(const std::string& path, size_t max_bytes = SIZE_MAX);
// Returns a path for a temporary file that will replace the file with the path `name`. The temporary file is
// in the same folder, and its name begins with a dot and ends with random digits.
std::string make_temporary_path(const std::string& name);
// Returns whether `name` could be a result of make_temporary_path().
bool is_temporary_name(std::string_view name);
// Syncs a folder, so that renamed and new entries are durable.
void sync_directory(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Creates or replaces a file atomically: readers see the old or the new content. A failure leaves no
// temporary file. If the path is a symbolic link to an existing file, replaces that file, not the link. If
// the path is a device or a pipe, writes the text to it.
void replace_file(const std::string& path, std::string_view text);

// An exclusive lock on a folder. The system releases the lock when the process ends.
class FolderLock {
 public:
  // Locks the folder without waiting. If the folder is already locked, throws FileError with the reason
  // EWOULDBLOCK.
  explicit FolderLock(const std::string& path);

 private:
  File handle_;
};

}  // namespace tapeformer
