// Files that survive crashes and full disks: complete writes, fsync, and replacement by rename. Every failure
// is a FileError with the path and the system's reason.
#pragma once

#include <cerrno>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tapeformer {

class FileError : public std::runtime_error {
 public:
  // "cannot ACTION PATH: REASON"; the reason is an errno.
  FileError(const std::string& action, const std::string& path, int reason = errno);
  int reason() const { return reason_; }

 private:
  int reason_;
};

// An open file descriptor, closed with its owner.
class File {
 public:
  // Flags as for open(2); O_CLOEXEC is added. Throws FileError.
  File(const std::string& path, int flags);
  ~File();
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  void write(const void* data, size_t size);
  void read_at(void* data, size_t size,
               size_t offset) const;  // the whole range; throws if the file is shorter
  size_t size() const;
  void truncate(size_t size);
  // Data on disk; after it returns, a rename of this file can only uncover whole content.
  void sync();

 private:
  std::string path_;
  int descriptor_;
};

std::string read_file(const std::string& path);
// Creates or overwrites, then syncs.
void write_file_synced(const std::string& path, std::string_view text);
// Makes renames and new entries in a folder durable.
void sync_folder(const std::string& path);
void rename_path(const std::string& from, const std::string& to);
// Readers see the old content or the new one, never a mixture; after a failure nothing else is left behind.
// Behind a link its target is replaced; a device or a pipe is written to.
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
