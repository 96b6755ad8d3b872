// A folder, such as a run directory, in which the program chooses the names of the entries. No function
// follows a symbolic link in the folder, so a link cannot redirect a write. The path of the folder itself may
// contain links.
//
// The names of entries are single components of a path. If a system call fails, the functions throw
// FileError.
#pragma once

#include <string>
#include <string_view>

#include "core/system/files.h"

namespace tapeformer {

class Folder {
 public:
  enum class Kind { none, file, folder, link, other };

  explicit Folder(const std::string& path);
  // Opens an existing folder. Throws if the entry is a symbolic link.
  Folder open_folder(const std::string& name) const;
  // Creates a folder. Throws if the entry exists.
  Folder create_folder(const std::string& name) const;

  const std::string& path() const { return handle_.path(); }
  std::string make_entry_path(const std::string& name) const {
    return path() + (path().ends_with('/') ? "" : "/") + name;
  }
  // Returns the kind of an entry; Kind::none if there is no such entry.
  Kind get_entry_kind(const std::string& name) const;

  // Creates a file for writing. Throws if the entry exists.
  File create_file(const std::string& name) const;
  // Opens a regular file with the flags of open(2). Creates the file if `flags` contain O_CREAT.
  File open_file(const std::string& name, int flags) const;

  // Creates a file with this text and syncs it. Throws if the entry exists.
  void write_new_file(const std::string& name, std::string_view text) const;
  // Creates or replaces a file atomically. Readers see the old or the new content, even if the call fails.
  void replace_file(const std::string& name, std::string_view text) const;
  // Creates or replaces a symbolic link.
  void replace_link(const std::string& name, const std::string& target) const;
  void rename(const std::string& from, const std::string& to) const;
  // Exchanges two entries atomically.
  void exchange(const std::string& a, const std::string& b) const;
  // Removes a file, a link, or a folder and its contents. Does nothing if there is no such entry.
  void remove_all(const std::string& name) const;
  // Syncs the folder, so that new, renamed and removed entries are durable.
  void sync() const;

 private:
  explicit Folder(File handle) : handle_(std::move(handle)) {}

  File handle_;
};

}  // namespace tapeformer
