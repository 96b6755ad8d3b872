// A reader of zip archives (PKWARE APPNOTE 6.3.10). Supports stored and deflated members below 4 GiB.
#pragma once

#include <filesystem>
#include <string>

#include "core/system/files.h"

namespace tapeformer {

// Writes the unpacked contents of the member `name` to the file `out`. Throws DataError with the path of the
// archive if the archive is damaged or has no such member, or if the member exceeds `max_bytes` bytes.
void unpack_zip_member(const std::filesystem::path& archive, const std::string& name, int64_t max_bytes,
                       File& out);

}  // namespace tapeformer
