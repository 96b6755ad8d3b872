// Whole files as bytes, of at most an expected size. No state; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string_view>
#include <vector>

namespace tapeformer {

using Bytes = std::vector<uint8_t>;

// The first `size` bytes as the text that core/files.h writes.
inline std::string_view as_text(const Bytes& bytes, size_t size) {
  return {reinterpret_cast<const char*>(bytes.data()), size};
}

// The contents of a regular file as they are (data/gzip.h unpacks). Throws DataError, naming the file, when
// it is missing, cannot be read or holds more than max_bytes.
Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes);

// Returns whether the path leads to a folder; false also for paths that the system refuses, such as names
// that are too long and links in a circle.
bool is_folder(const std::filesystem::path& path);

// Returns whether there is anything at the path, also a link that leads nowhere.
bool has_entry(const std::filesystem::path& path);

// Returns everything in a folder, or also in all folders below it, sorted. Throws DataError, naming the path,
// if the system refuses.
std::vector<std::filesystem::directory_entry> folder_entries(const std::filesystem::path& folder);
std::vector<std::filesystem::directory_entry> entries_below(const std::filesystem::path& folder);

// Returns the size of a file. Throws DataError, naming the file.
int64_t file_bytes(const std::filesystem::path& path);

// Throws DataError, naming the file, when it is missing or no regular file.
void require_regular_file(const std::filesystem::path& path);

}  // namespace tapeformer
