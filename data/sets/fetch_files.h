// Temporary files and copies of files from a path or URL. Internal to the functions that fetch data sets.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/system/files.h"

namespace tapeformer {

// Owner of a temporary file. The destructor removes the file, unless the file was renamed.
struct TemporaryFile {
  std::filesystem::path path;
  ~TemporaryFile();
};

// Creates a file and opens it for writing. If a file with the same path exists, for example from an
// interrupted download, this file is removed first. Throws FileError if the new file cannot be created.
File create_file(const std::filesystem::path& path);

// Returns the path of a file or folder on this machine, or an empty path for a URL of another machine.
std::filesystem::path find_local_path(const std::string& source);

// Copies a file from a path or URL to `target`. Returns false if the file does not exist. Throws DataError if
// it has more than `max_bytes` or cannot be downloaded.
bool copy_file(const std::string& source, const std::filesystem::path& target, int64_t max_bytes);

}  // namespace tapeformer
