// Getting the files of a known set into the data directory. A file appears there under its name only if its
// unpacked contents have the published size and SHA-256. Files that are there already and verify are left
// alone, other files are replaced. Call from one thread per data directory.
#pragma once

#include "data/verify.h"

namespace tapeformer {

// `from` names the source: a folder with the original files, plain or .gz, or a .tar.gz archive, by path,
// file:// or https:// URL (http:// only of this machine); empty: the published one. The files go to NAME/ in
// `data_dir` or else in the first data directory. Returns the report of the files there, all good.
//
// Throws ConfigError for an unknown name or an address that is not https://, DataError for files that cannot
// be had and for contents that differ from the published ones, FileError or std::runtime_error for files that
// cannot be written.
SetReport fetch_set(const std::string& name, const std::string& data_dir, const std::string& from = "");

}  // namespace tapeformer
