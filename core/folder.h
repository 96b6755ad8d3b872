// A folder whose entries the program names itself, such as a run directory. Entries are created exclusively
// and links in their place are never followed: a link that somebody put there cannot lead a write elsewhere.
// The path of the folder itself may contain links.
//
// Names are single components of a path. Every failure is a FileError.
#pragma once

#include <string>
#include <string_view>

#include "core/files.h"

namespace tapeformer {

class Folder {
 public:
  enum class Kind { none, file, folder, link, other };

  explicit Folder(const std::string& path);
  // An existing folder that is no link, and a new one.
  Folder open_folder(const std::string& name) const;
  Folder create_folder(const std::string& name) const;

  const std::string& path() const { return handle_.path(); }
  std::string path_of(const std::string& name) const {
    return path() + (path().ends_with('/') ? "" : "/") + name;
  }
  Kind kind_of(const std::string& name) const;

  // A new file, for writing.
  File create_file(const std::string& name) const;
  // A regular file, created if `flags` contain O_CREAT.
  File open_file(const std::string& name, int flags) const;

  // Writes and syncs a new file.
  void write(const std::string& name, std::string_view text) const;
  // Writes or replaces a file: readers see the old content or the new one, and a failure leaves the old one.
  void replace(const std::string& name, std::string_view text) const;
  // Creates or replaces a symbolic link.
  void replace_link(const std::string& name, const std::string& target) const;
  void rename(const std::string& from, const std::string& to) const;
  void exchange(const std::string& a, const std::string& b) const;
  // Removes a file, a link or a folder with its contents. No such entry is no error.
  void remove(const std::string& name) const;
  // Makes new, renamed and removed entries durable.
  void sync() const;

 private:
  explicit Folder(File handle) : handle_(std::move(handle)) {}

  File handle_;
};

}  // namespace tapeformer
