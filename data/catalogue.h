// The data sets that the program knows by name: their files with sizes and checksums, and how to get them. A
// constant table; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

// A file with its published size and SHA-256. Both are of the unpacked contents, so they hold for plain and
// gzip copies.
struct KnownFile {
  std::string_view name;  // the original name, without .gz
  int64_t bytes;
  std::string_view sha256;  // 64 hexadecimal digits
};

struct KnownSet {
  std::string_view name;  // also the folder in a data directory
  std::string_view title;
  int64_t height, width, channels;  // of every image
  std::span<const KnownFile> files;
  std::string_view system_folder;  // where a Debian package puts it; may be empty
  std::string_view how_to_get;
  // The https URL to fetch from: a folder with the .gz files, or a .tar.gz archive that contains the files.
  std::string_view url;
};

std::span<const KnownSet> known_sets();

// Throws ConfigError, with a suggestion, for a name that is not in the table.
const KnownSet& known_set(const std::string& name);

// `"mnst" is not a data set; did you mean "mnist"?`, or all the names when none is near.
std::string unknown_name_text(const std::string& name, const std::string& kind,
                              const std::vector<std::string>& names);

}  // namespace tapeformer
