// Functions that search for data sets in data directories. A data directory contains one folder for each data
// set. Each folder has the name of its data set and contains the original files, plain or compressed. The
// following directories are searched in the given order:
//   1. the directory that the user specifies; if the user specifies a directory, 2 and 3 are not searched;
//   2. $TAPEFORMER_DATA;
//   3. $XDG_DATA_HOME/tapeformer, or $HOME/.local/share/tapeformer if XDG_DATA_HOME is not an absolute path;
//   4. the folder of the Debian package of the data set.
// Variables that are not set or empty, and a HOME that is not an absolute path, are ignored.
// The functions do not write to data directories. The functions are thread-safe if no thread changes
// environment variables.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/errors.h"
#include "data/sets/catalogue.h"

namespace tapeformer {

// Thrown if a data set is in none of the candidate folders. The message lists the folders and says how to get
// the data set.
class MissingDatasetError : public DataError {
 public:
  MissingDatasetError(const CatalogueEntry& missing,
                      const std::vector<std::filesystem::path>& searched_folders);
  const CatalogueEntry* entry;
};

// Returns the folders that are searched for the data set, in search order. `data_dir` is the directory that
// the user specifies, or an empty string. The list is empty if there is no data directory and the data set
// has no Debian package.
std::vector<std::filesystem::path> list_candidate_folders(const CatalogueEntry& entry,
                                                          const std::string& data_dir);

// Returns the folder in the first data directory to which a new data set is written. Throws DataError if
// there is no data directory.
std::filesystem::path choose_new_folder(const CatalogueEntry& entry, const std::string& data_dir);

// Returns the first candidate folder that contains a file of the data set, or std::nullopt if there is none.
// If the data set has no checksums, returns the first candidate folder that exists.
std::optional<std::filesystem::path> find_dataset_folder(const CatalogueEntry& entry,
                                                         const std::string& data_dir);

// Returns the folder from find_dataset_folder(). Throws MissingDatasetError if there is none.
std::filesystem::path require_dataset_folder(const CatalogueEntry& entry, const std::string& data_dir);

// Returns the folder that contains the files of the data set. If the archive of AN4 was unpacked in `folder`,
// the result is folder/an4. Otherwise, the result is `folder`.
std::filesystem::path find_contents_folder(const CatalogueEntry& entry, const std::filesystem::path& folder);

// Returns folder/name if this path exists, and otherwise folder/name with one of the endings .gz, .xz, .bz2
// and .zst. Returns std::nullopt if no such path exists.
std::optional<std::filesystem::path> locate_file(const std::filesystem::path& folder, std::string_view name);

// Returns the path from locate_file(). Throws DataError if it returns std::nullopt.
std::filesystem::path require_file(const std::filesystem::path& folder, std::string_view name);

}  // namespace tapeformer
