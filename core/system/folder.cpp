#include "core/system/folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>

namespace tapeformer {
namespace {

constexpr mode_t kFileMode = 0666, kFolderMode = 0777;  // permissions before the umask is applied

File open_at(const File& folder, const std::string& path, const std::string& name, int flags) {
  const int all = flags | O_NOFOLLOW | O_CLOEXEC;
  int descriptor = -1;
  do descriptor = ::openat(folder.descriptor(), name.c_str(), all, kFileMode);
  while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0 && errno == ELOOP)
    throw FileError("open", path, ELOOP, "it is a symbolic link, expected a file or folder");
  if (descriptor < 0) throw FileError("open", path);
  return File(descriptor, path);
}

}  // namespace

Folder::Folder(const std::string& path) : handle_(path.empty() ? "." : path, O_RDONLY | O_DIRECTORY) {}

Folder Folder::open_folder(const std::string& name) const {
  const Kind kind = get_entry_kind(name);
  if (kind == Kind::link)
    throw FileError("open", make_entry_path(name), ELOOP, "it is a symbolic link, expected a folder");
  return Folder(open_at(handle_, make_entry_path(name), name, O_RDONLY | O_DIRECTORY));
}

Folder Folder::create_folder(const std::string& name) const {
  if (::mkdirat(handle_.descriptor(), name.c_str(), kFolderMode) != 0)
    throw FileError("create", make_entry_path(name));
  return open_folder(name);
}

Folder::Kind Folder::get_entry_kind(const std::string& name) const {
  struct stat status {};
  if (::fstatat(handle_.descriptor(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return Kind::none;
    throw FileError("stat", make_entry_path(name));
  }
  if (S_ISREG(status.st_mode)) return Kind::file;
  if (S_ISDIR(status.st_mode)) return Kind::folder;
  return S_ISLNK(status.st_mode) ? Kind::link : Kind::other;
}

File Folder::create_file(const std::string& name) const {
  return open_at(handle_, make_entry_path(name), name, O_WRONLY | O_CREAT | O_EXCL);
}

File Folder::open_file(const std::string& name, int flags) const {
  File file = open_at(handle_, make_entry_path(name), name, flags | O_NONBLOCK);
  file.size();
  return file;
}

void Folder::write_new_file(const std::string& name, std::string_view text) const {
  File file = create_file(name);
  file.write(text.data(), text.size());
  file.sync();
}

void Folder::replace_file(const std::string& name, std::string_view text) const {
  const std::string temporary = make_temporary_path(name);
  try {
    write_new_file(temporary, text);
    rename(temporary, name);
  } catch (const FileError& error) {
    ::unlinkat(handle_.descriptor(), temporary.c_str(), 0);
    throw FileError("write", make_entry_path(name), error.error_number());
  }
  sync();
}

void Folder::replace_link(const std::string& name, const std::string& target) const {
  const std::string temporary = make_temporary_path(name);
  if (::symlinkat(target.c_str(), handle_.descriptor(), temporary.c_str()) != 0)
    throw FileError("link", make_entry_path(name));
  try {
    rename(temporary, name);
  } catch (const FileError&) {
    ::unlinkat(handle_.descriptor(), temporary.c_str(), 0);
    throw;
  }
  sync();
}

void Folder::rename(const std::string& from, const std::string& to) const {
  if (::renameat(handle_.descriptor(), from.c_str(), handle_.descriptor(), to.c_str()) != 0)
    throw FileError("rename " + make_entry_path(from) + " to", make_entry_path(to));
}

void Folder::exchange(const std::string& a, const std::string& b) const {
  // The C library of older systems has no renameat2().
  const int folder = handle_.descriptor();
  if (::syscall(SYS_renameat2, folder, a.c_str(), folder, b.c_str(), RENAME_EXCHANGE) != 0)
    throw FileError("exchange " + make_entry_path(a) + " with", make_entry_path(b));
}

void Folder::remove_all(const std::string& name) const {
  if (get_entry_kind(name) == Kind::folder) {
    std::error_code error;
    std::filesystem::remove_all(make_entry_path(name), error);
    if (error) throw FileError("remove", make_entry_path(name), error.value());
  } else if (::unlinkat(handle_.descriptor(), name.c_str(), 0) != 0 && errno != ENOENT) {
    throw FileError("remove", make_entry_path(name));
  }
}

void Folder::sync() const {
  // Some network file systems cannot sync folders and return EINVAL.
  if (::fsync(handle_.descriptor()) != 0 && errno != EINVAL) throw FileError("sync", path());
}

}  // namespace tapeformer
