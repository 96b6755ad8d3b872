// Downloading of data sets into a data directory. A file gets its final name only if its unpacked contents
// have the published size and SHA-256. Existing files with these contents are kept, and other files are
// replaced. At most one thread may fetch into a data directory.
#pragma once

#include "data/sets/verify.h"

namespace tapeformer {

bool can_be_fetched(const CatalogueEntry& set);

// Fetches the missing or damaged files of a data set. Returns the report of verify_dataset(), or that of
// list_dataset_reports() for wmt14-en-de, whose files have no published checksums (data/sets/wmt14.h).
// The source `from` is a folder with the original files, plain or .gz, or a .tar.gz, .tgz, .tar or .zip
// archive that contains these files in any folder. `from` can be a path, a file:// or https:// URL, or an
// http:// URL of localhost. If `from` is empty, the published source is used. The files are written to the
// folder of the data set in `data_dir`, or in the first data directory if `data_dir` is empty.
//
// Throws ConfigError for an unknown name or an unsupported URL. Throws DataError if files cannot be fetched
// or differ from the published files. Throws FileError or std::runtime_error if files cannot be written.
DatasetReport fetch_dataset(const std::string& name, const std::string& data_dir,
                            const std::string& from = "");

}  // namespace tapeformer
