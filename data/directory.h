// Where data sets are. A data directory holds one folder per set with the original file names, plain or .gz;
// it is only read. The order: the directory that the user names (then no other is looked into, so that a
// mistyped path cannot silently train on other data), else $TAPEFORMER_DATA, $XDG_DATA_HOME/tapeformer,
// ~/.local/share/tapeformer; last the folder of the set's Debian package. The first folder with a file of the
// set is the set's. Reads the environment; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/catalogue.h"

namespace tapeformer {

// The folders in which the set may be, in order. `data_dir` is what the user named, or empty.
std::vector<std::filesystem::path> candidate_folders(const KnownSet& set, const std::string& data_dir);

// The first folder that holds a file of the set.
std::optional<std::filesystem::path> locate_set(const KnownSet& set, const std::string& data_dir);

// The same; DataError with every place looked in and how to get the set when there is none.
std::filesystem::path require_set(const KnownSet& set, const std::string& data_dir);

// How the user gets the set: by this program where it can fetch it, and by hand.
std::string how_to_get(const KnownSet& set);

// What that error says.
std::string missing_set_text(const KnownSet& set, const std::vector<std::filesystem::path>& looked_in);

// folder/name, or else folder/name.gz, if it exists.
std::optional<std::filesystem::path> locate_file(const std::filesystem::path& folder, std::string_view name);

// The same; DataError with both names when neither exists.
std::filesystem::path require_file(const std::filesystem::path& folder, std::string_view name);

}  // namespace tapeformer
