// Getting the files of a known set into the data directory. A file appears there under its name only when its
// unpacked contents have the known size and checksum; what is there already and verifies is left alone,
// what does not is replaced. Call from one thread per data directory.
#pragma once

#include "data/verify.h"

namespace tapeformer {

// `from`: the folder with the original files, plain or .gz: a local path or an http://, https:// or file://
// URL; empty: the set's own. The files go to NAME/ in `data_dir` or else in the first of the data
// directories. Returns the report of the files there, all good. Throws ConfigError for an unknown name,
// DataError for a set that has no URL of its own (with how to get it), for files that cannot be had and for
// contents that are not the published ones, std::runtime_error for what cannot be written.
SetReport fetch_set(const std::string& name, const std::string& data_dir, const std::string& from = "");

}  // namespace tapeformer
