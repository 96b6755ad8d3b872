#include "data/files/file.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "core/base/errors.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

template <class Iterator>
std::vector<fs::directory_entry> sorted_entries(const fs::path& folder) {
  try {
    std::vector<fs::directory_entry> entries(Iterator(folder), {});
    std::sort(entries.begin(), entries.end());
    return entries;
  } catch (const fs::filesystem_error& error) {
    const fs::path& path = error.path1().empty() ? folder : error.path1();
    throw DataError(path.string() + ": cannot be listed: " + error.code().message());
  }
}

using FileIdentity = std::pair<dev_t, ino_t>;

// Calls visit(file, identity) for each regular file of `paths`, including the files in folders and behind
// links. Visits each folder once, because links can be circular; `visited` contains the visited folders.
template <class Visit>
void visit_files(const std::vector<fs::path>& paths, std::set<FileIdentity>& visited, const Visit& visit) {
  for (const fs::path& path : paths) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) continue;
    const FileIdentity identity(status.st_dev, status.st_ino);
    if (S_ISREG(status.st_mode)) visit(path, identity);
    if (!S_ISDIR(status.st_mode) || !visited.insert(identity).second) continue;
    std::error_code ignored;
    std::vector<fs::path> entries;
    for (const auto& entry : fs::directory_iterator(path, ignored)) entries.push_back(entry.path());
    visit_files(entries, visited, visit);
  }
}

}  // namespace

void require_regular_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) throw DataError(path.string() + ": no such file");
  if (!std::filesystem::is_regular_file(status)) throw DataError(path.string() + ": is not a regular file");
}

File open_data_file(const fs::path& path) try {
  require_regular_file(path);
  return open_regular_file(path.string());
} catch (const FileError& error) {
  throw DataError(error.what());
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool path_exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

std::vector<fs::directory_entry> list_folder(const fs::path& folder) {
  return sorted_entries<fs::directory_iterator>(folder);
}

std::vector<fs::directory_entry> list_folder_tree(const fs::path& folder) {
  return sorted_entries<fs::recursive_directory_iterator>(folder);
}

int64_t read_file_size(const fs::path& path) {
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) throw DataError(path.string() + ": has no size: " + error.message());
  return static_cast<int64_t>(size);
}

Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes) {
  require_regular_file(path);
  const int64_t size = read_file_size(path);
  if (size > max_bytes)
    throw DataError(concat_text(path.string(), ": has ", size, " bytes, expected at most ", max_bytes));
  std::ifstream file(path, std::ios::binary);
  if (!file) throw DataError(path.string() + ": cannot be opened: " + std::strerror(errno));
  Bytes bytes(static_cast<size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), size);
  if (file.gcount() != size)
    throw DataError(concat_text(path.string(), ": read ", file.gcount(), " bytes, expected ", size));
  return bytes;
}

void refuse_to_replace_inputs(const std::vector<fs::path>& outputs, const std::vector<fs::path>& inputs) {
  std::map<FileIdentity, fs::path> replaced;
  std::set<FileIdentity> output_folders, input_folders;
  visit_files(outputs, output_folders,
              [&](const fs::path& path, const FileIdentity& identity) { replaced.emplace(identity, path); });
  if (replaced.empty()) return;
  visit_files(inputs, input_folders, [&](const fs::path& path, const FileIdentity& identity) {
    const auto found = replaced.find(identity);
    if (found == replaced.end()) return;
    const std::string output = found->second.string(), input = path.string();
    throw ConfigError(concat_text(output, ": is an input of the command",
                                  output == input ? "" : " (" + input + ")",
                                  ", so it is not replaced; choose another output"));
  });
}

}  // namespace tapeformer
