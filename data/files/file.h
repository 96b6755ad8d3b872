// Functions for files and folders. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/system/files.h"

namespace tapeformer {

using Bytes = std::vector<uint8_t>;

// Returns a view of the first `size` bytes of `bytes` as characters. Does not copy the bytes.
inline std::string_view view_as_text(const Bytes& bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

// Returns the contents of a regular file. Does not unpack compressed files. Throws DataError with the path if
// the file is missing, cannot be read or contains more than `max_bytes`.
Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes);

// Opens a regular file for reading. Throws DataError with the path if the file is missing, is not a regular
// file or cannot be opened. Functions of the returned File throw FileError.
File open_data_file(const std::filesystem::path& path);

// Returns whether the path is a folder or a link to a folder. Returns false for invalid paths, such as names
// that are too long and circular links.
bool is_folder(const std::filesystem::path& path);

// Returns whether the path exists. Returns true for a link without a target.
bool path_exists(const std::filesystem::path& path);

// Returns the entries of a folder, sorted. Throws DataError with the path if the folder cannot be read.
std::vector<std::filesystem::directory_entry> list_folder(const std::filesystem::path& folder);
// Returns the entries of a folder and of all folders below it, sorted. Throws DataError with the path if a
// folder cannot be read.
std::vector<std::filesystem::directory_entry> list_folder_tree(const std::filesystem::path& folder);

// Returns the size of a file in bytes. Throws DataError with the path if the size cannot be read.
int64_t read_file_size(const std::filesystem::path& path);

// Throws DataError with the path if the file is missing or is not a regular file.
void require_regular_file(const std::filesystem::path& path);

// Throws ConfigError if a file in `outputs` is also in `inputs`. Commands call the function before they
// replace or remove the files in `outputs`. Files are compared by their identity in the file system, so links
// and other spellings of a path make no difference. A folder stands for all files in it and its subfolders.
// Paths that do not exist are ignored.
void refuse_to_replace_inputs(const std::vector<std::filesystem::path>& outputs,
                              const std::vector<std::filesystem::path>& inputs);

}  // namespace tapeformer
