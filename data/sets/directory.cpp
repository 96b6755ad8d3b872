#include "data/sets/directory.h"

#include <algorithm>

#include "core/base/environment.h"
#include "core/base/errors.h"
#include "core/options/option_names.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

std::string explain_no_directory() {
  return name_option("ImageOptions::data_dir") +
         " and TAPEFORMER_DATA are not set, and XDG_DATA_HOME and HOME name no absolute folder";
}

// Returns the path in an environment variable. Returns "" if the variable is not set. As the XDG
// specification requires, a relative path is ignored if `allow_relative` is false.
fs::path read_path_variable(const char* name, bool allow_relative) {
  const char* const value = get_environment_variable(name);
  return value && (allow_relative || fs::path(value).is_absolute()) ? fs::path(value) : fs::path();
}

// Returns the data directories in search order, or an empty list if the environment names no directory.
std::vector<fs::path> list_data_directories(const std::string& data_dir) {
  if (!data_dir.empty()) return {data_dir};
  std::vector<fs::path> directories;
  if (const fs::path own = read_path_variable("TAPEFORMER_DATA", true); !own.empty())
    directories.push_back(own);
  if (const fs::path xdg = read_path_variable("XDG_DATA_HOME", false); !xdg.empty())
    directories.push_back(xdg / "tapeformer");
  else if (const fs::path home = read_path_variable("HOME", false); !home.empty())
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
  if (searched_folders.empty() || searched_folders.front() == entry.system_folder)
    text += "\n  no data directory: " + explain_no_directory();
  return concat_text(text, "\nto get it: ", entry.download_instructions);
}

}  // namespace

std::vector<fs::path> list_candidate_folders(const CatalogueEntry& entry, const std::string& data_dir) {
  std::vector<fs::path> folders = list_data_directories(data_dir);
  for (fs::path& folder : folders) folder /= entry.name;
  if (!entry.system_folder.empty()) folders.emplace_back(entry.system_folder);
  return folders;
}

fs::path choose_new_folder(const CatalogueEntry& entry, const std::string& data_dir) {
  const std::vector<fs::path> directories = list_data_directories(data_dir);
  if (directories.empty())
    throw DataError(concat_text(entry.name, ": no data directory to write to: ", explain_no_directory()));
  return directories.front() / entry.name;
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
  const bool nested = entry.format == CorpusFormat::an4 && !is_folder(folder / "etc");
  return nested && is_folder(folder / "an4/etc") ? folder / "an4" : folder;
}

std::optional<fs::path> locate_file(const fs::path& folder, std::string_view name) {
  fs::path path = folder / name;
  if (is_present(path)) return path;
  for (const char* const ending : {".gz", ".xz", ".bz2", ".zst"})
    if (fs::path packed = path.string() + ending; is_present(packed)) return packed;
  return std::nullopt;
}

fs::path require_file(const fs::path& folder, std::string_view name) {
  if (auto path = locate_file(folder, name)) return *std::move(path);
  throw DataError(
      concat_text((folder / name).string(), ": no such file, neither plain nor as ", name, ".gz"));
}

}  // namespace tapeformer
