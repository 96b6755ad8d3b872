#include "train/cli/pretrained/new_path.h"

#include "core/base/errors.h"
#include "core/system/files.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

}  // namespace

fs::path check_new_path(const std::string& argument, const std::string& text) {
  fs::path path = fs::path(text).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (path.empty() || path.filename() == "." || path.filename() == "..")
    throw ConfigError(argument + ": \"" + text + "\" is no name of a new file or folder");
  std::error_code ignored;
  if (fs::exists(fs::symlink_status(path, ignored)))
    throw ConfigError(argument + ": " + path.string() + " exists; choose a new name");
  return path;
}

void write_new_path(const fs::path& path, const std::function<void(const fs::path&)>& write) {
  const fs::path temporary = make_temporary_path(path.string());
  if (!path.parent_path().empty()) fs::create_directories(path.parent_path());
  try {
    write(temporary);
    if (fs::is_directory(temporary)) sync_directory(temporary.string());
    rename_path(temporary.string(), path.string());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(temporary, ignored);
    throw;
  }
}

}  // namespace tapeformer
