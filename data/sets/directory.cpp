#include "data/sets/directory.h"

#include <algorithm>
#include <cstdlib>

#include "core/errors.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

fs::path from_environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? fs::path(value) : fs::path();
}

std::vector<fs::path> list_data_directories(const std::string& data_dir) {
  if (!data_dir.empty()) return {data_dir};
  std::vector<fs::path> directories;
  if (const fs::path own = from_environment("TAPEFORMER_DATA"); !own.empty()) directories.push_back(own);
  // The XDG specification requires that relative paths are ignored.
  if (const fs::path xdg = from_environment("XDG_DATA_HOME"); xdg.is_absolute())
    directories.push_back(xdg / "tapeformer");
  else if (const fs::path home = from_environment("HOME"); !home.empty())
    directories.push_back(home / ".local/share/tapeformer");
  return directories;
}

bool is_present(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool has_file_of(const CatalogueEntry& entry, const fs::path& folder) {
  return std::any_of(entry.files.begin(), entry.files.end(),
                     [&](const CatalogueFile& file) { return locate_file(folder, file.name).has_value(); });
}

std::string describe_missing_set(const CatalogueEntry& entry, const std::vector<fs::path>& searched_folders) {
  std::string text = concat_text(entry.name, ": data set not found; looked in");
  for (const fs::path& folder : searched_folders)
    text += "\n  " + folder.string() + (is_present(folder) ? "" : " (no such folder)");
  return concat_text(text, "\nto get it: ", entry.download_instructions);
}

}  // namespace

std::vector<fs::path> list_candidate_folders(const CatalogueEntry& entry, const std::string& data_dir) {
  std::vector<fs::path> folders = list_data_directories(data_dir);
  for (fs::path& folder : folders) folder /= entry.name;
  if (!entry.system_folder.empty()) folders.emplace_back(entry.system_folder);
  return folders;
}

std::optional<fs::path> find_dataset_folder(const CatalogueEntry& entry, const std::string& data_dir) {
  for (const fs::path& folder : list_candidate_folders(entry, data_dir))
    if (entry.has_checksums() ? has_file_of(entry, folder) : is_folder(folder)) return folder;
  return std::nullopt;
}

fs::path require_dataset_folder(const CatalogueEntry& entry, const std::string& data_dir) {
  if (const auto folder = find_dataset_folder(entry, data_dir)) return *folder;
  throw MissingDatasetError(entry, list_candidate_folders(entry, data_dir));
}

MissingDatasetError::MissingDatasetError(const CatalogueEntry& missing,
                                         const std::vector<fs::path>& searched_folders)
    : DataError(describe_missing_set(missing, searched_folders)), entry(&missing) {}

fs::path find_contents_folder(const CatalogueEntry& entry, const fs::path& folder) {
  const bool nested = entry.format == DatasetFormat::an4 && !is_folder(folder / "etc");
  return nested && is_folder(folder / "an4/etc") ? folder / "an4" : folder;
}

std::optional<fs::path> locate_file(const fs::path& folder, std::string_view name) {
  fs::path path = folder / name;
  if (is_present(path)) return path;
  path += ".gz";
  if (is_present(path)) return path;
  return std::nullopt;
}

fs::path require_file(const fs::path& folder, std::string_view name) {
  if (auto path = locate_file(folder, name)) return *std::move(path);
  throw DataError(
      concat_text((folder / name).string(), ": no such file, neither plain nor as ", name, ".gz"));
}

}  // namespace tapeformer
