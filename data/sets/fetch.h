// Downloading of data sets into a data directory. A file gets its final name only if its unpacked contents
// have the published size and SHA-256. Existing files with these contents are kept, and other files are
// replaced. At most one thread may fetch into a data directory.
#pragma once

#include "data/sets/verify.h"

namespace tapeformer {

// Fetches the missing or damaged files of a data set. Returns the report of verify_dataset(). `from` is the
// path or URL of a folder with the original files, plain or .gz, or of a .tar.gz or .zip archive. URLs begin
// with file:// or https://, or with http:// for localhost only. If `from` is empty, uses the published
// source. The files are written to the folder of the data set in `data_dir`, or in the first data directory
// if `data_dir` is empty.
//
// Throws ConfigError for an unknown name or an unsupported URL. Throws DataError if files cannot be fetched
// or differ from the published files. Throws FileError or std::runtime_error if files cannot be written.
DatasetReport fetch_dataset(const std::string& name, const std::string& data_dir,
                            const std::string& from = "");

}  // namespace tapeformer
