// Files that survive crashes and full disks: complete writes, fsync, and replacement by rename. Every failure
// is a FileError with the path and the system's reason. Files that the user names may be links; core/folder.h
// serves files whose names the program chooses.
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
  // "cannot ACTION PATH: REASON"; the reason is an errno, with the text of the system or another one.
  FileError(const std::string& action, const std::string& path, int reason = errno);
  FileError(const std::string& action, const std::string& path, int reason, const std::string& text);
  int reason() const { return reason_; }

 private:
  int reason_;
};

// An open file descriptor, closed with its owner.
class File {
 public:
  // Flags as for open(2); O_CLOEXEC is added. Throws FileError.
  File(const std::string& path, int flags);
  // Takes over an open descriptor; `path` names the file in errors.
  File(int descriptor, std::string path) : path_(std::move(path)), descriptor_(descriptor) {}
  File(File&& other) noexcept
      : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  void write(const void* data, size_t size);
  void read_at(void* data, size_t size,
               size_t offset) const;  // the whole range; throws if the file is shorter
  size_t size() const;                // throws if it is no regular file
  void truncate(size_t size);
  // Data on disk; after it returns, a rename of this file can only uncover whole content.
  void sync();

 private:
  std::string path_;
  int descriptor_;
};

// Opens a regular file for reading. Throws FileError for anything else, and does not wait for a pipe.
File open_regular(const std::string& path);
// The contents of a regular file of at most `max_bytes`.
std::string read_file(const std::string& path, size_t max_bytes = SIZE_MAX);
// A hidden name in the same folder for a temporary file that will replace `name`. No other process can
// predict it.
std::string temporary_name(const std::string& name);
// Whether a file's name ends like the result of temporary_name.
bool is_temporary_name(std::string_view name);
// Makes renames and new entries in a folder durable.
void sync_folder(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Readers see the old content or the new one, never a mixture; after a failure nothing else is left behind.
// If the path is a link, its target is replaced; a device or a pipe is written to.
void replace_file(const std::string& path, std::string_view text);

// A folder that one process at a time may write to, from construction to destruction; the system gives it
// free when the process ends in any way.
class FolderLock {
 public:
  // Throws FileError; its reason is EWOULDBLOCK when another process holds the folder.
  explicit FolderLock(const std::string& path);

 private:
  File folder_;
};

}  // namespace tapeformer
