// The data sets that the program knows by name: their files with sizes and checksums, and how to get them. A
// constant table; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tapeformer {

// Size and SHA-256 are of the unpacked contents, so that plain and gzip copies verify alike.
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
  // For fetching: the folder of the .gz files, or a .tar.gz archive with the files; https.
  std::string_view url;
};

std::span<const KnownSet> known_sets();

// Throws ConfigError, with a suggestion, for a name that is not in the table.
const KnownSet& known_set(const std::string& name);

// `"mnst" is not a data set; did you mean "mnist"?`, or all the names when none is near.
std::string unknown_name_text(const std::string& name, const std::string& kind,
                              const std::vector<std::string>& names);

}  // namespace tapeformer
