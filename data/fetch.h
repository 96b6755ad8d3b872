// Fetching of known data sets into the data directory. A file gets its final name only if its unpacked
// contents have the published size and SHA-256. Existing files that verify are kept, other files are
// replaced. Call from one thread per data directory.
#pragma once

#include "data/verify.h"

namespace tapeformer {

// Fetches the files of the set `name` that are missing or damaged, and returns the verified report. `from` is
// a folder with the original files, plain or .gz, or a .tar.gz archive: a path, a file:// URL or an https://
// URL (http:// only of this machine). If `from` is empty, the published source is used. The files are written
// to NAME/ in `data_dir`, or in the first data directory if `data_dir` is empty.
//
// Throws ConfigError for an unknown name or an unsupported URL. Throws DataError if files cannot be fetched
// or their contents differ from the published ones. Throws FileError or std::runtime_error if files cannot be
// written.
SetReport fetch_set(const std::string& name, const std::string& data_dir, const std::string& from = "");

}  // namespace tapeformer
