#include "data/directory.h"

#include <algorithm>
#include <cstdlib>

#include "core/errors.h"
#include "data/files/download.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? fs::path(value) : fs::path();
}

std::vector<fs::path> data_directories(const std::string& data_dir) {
  if (!data_dir.empty()) return {data_dir};
  std::vector<fs::path> directories;
  if (const fs::path own = from_environment("TAPEFORMER_DATA"); !own.empty()) directories.push_back(own);
  // The XDG specification: relative paths are to be ignored.
  if (const fs::path xdg = from_environment("XDG_DATA_HOME"); xdg.is_absolute())
    directories.push_back(xdg / "tapeformer");
  else if (const fs::path home = from_environment("HOME"); !home.empty())
    directories.push_back(home / ".local/share/tapeformer");
  return directories;
}

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

}  // namespace

std::vector<fs::path> candidate_folders(const KnownSet& set, const std::string& data_dir) {
  std::vector<fs::path> folders = data_directories(data_dir);
  for (fs::path& folder : folders) folder /= set.name;
  if (!set.system_folder.empty()) folders.emplace_back(set.system_folder);
  return folders;
}

std::optional<fs::path> locate_set(const KnownSet& set, const std::string& data_dir) {
  for (const fs::path& folder : candidate_folders(set, data_dir))
    if (std::any_of(set.files.begin(), set.files.end(),
                    [&](const KnownFile& file) { return locate_file(folder, file.name).has_value(); }))
      return folder;
  return std::nullopt;
}

fs::path require_set(const KnownSet& set, const std::string& data_dir) {
  if (const auto folder = locate_set(set, data_dir)) return *folder;
  throw DataError(missing_set_text(set, candidate_folders(set, data_dir)));
}

std::string how_to_get(const KnownSet& set) {
  const bool fetched = can_download() && !set.url.empty();
  return concat_text(fetched ? concat_text("tapeformer data fetch ", set.name, ", or ") : "", set.how_to_get);
}

std::string missing_set_text(const KnownSet& set, const std::vector<fs::path>& looked_in) {
  std::string text = concat_text(set.name, ": data set not found; looked in");
  for (const fs::path& folder : looked_in) {
    std::error_code ignored;
    text += "\n  " + folder.string() + (fs::exists(folder, ignored) ? "" : " (no such folder)");
  }
  return text + "\nto get it: " + how_to_get(set);
}

std::optional<fs::path> locate_file(const fs::path& folder, std::string_view name) {
  fs::path path = folder / name;
  if (is_file(path)) return path;
  path += ".gz";
  if (is_file(path)) return path;
  return std::nullopt;
}

fs::path require_file(const fs::path& folder, std::string_view name) {
  if (auto path = locate_file(folder, name)) return *std::move(path);
  throw DataError(
      concat_text((folder / name).string(), ": no such file, neither plain nor as ", name, ".gz"));
}

}  // namespace tapeformer
