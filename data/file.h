// Writing whole files so that either the old file is there or the new one, never half of one. (Reading:
// data/gzip.h.) No state; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace tapeformer {

using Bytes = std::vector<uint8_t>;

// Writes a temporary file beside `path`, flushes it to the disk and renames it. Throws std::runtime_error
// with the path and the system's reason; the temporary file is removed then and an older file stays as it
// was.
void write_atomically(const std::filesystem::path& path, std::span<const uint8_t> bytes);

}  // namespace tapeformer
