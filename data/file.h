// Whole files as bytes: bounded reading, and writing that leaves either the old file or the new one, never
// half of one. No state; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tapeformer {

using Bytes = std::vector<uint8_t>;

// The contents of a regular file as they are (data/gzip.h unpacks). Throws DataError, naming the file, when
// it is missing, cannot be read or holds more than max_bytes.
Bytes read_bytes(const std::filesystem::path& path, int64_t max_bytes);

// Throws DataError, naming the file, when it is missing or no regular file.
void require_regular_file(const std::filesystem::path& path);

// Writes a temporary file beside `path`, flushes it to the disk and renames it. Throws std::runtime_error
// with the path and the system's reason; the temporary file is removed then and an older file stays as it
// was.
void write_atomically(const std::filesystem::path& path, std::span<const uint8_t> bytes);

}  // namespace tapeformer
