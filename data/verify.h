// What the user can ask of the data directory: which sets are there, and whether their files are the ones
// that were published. Reads files only; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/catalogue.h"

namespace tapeformer {

struct FileReport {
  std::string name;            // the original name
  std::filesystem::path path;  // the plain or .gz file; empty: missing
  int64_t expected_bytes = 0;  // of the unpacked contents
  std::string expected_sha256;
  int64_t bytes = 0;  // of the found file; 0 in reports of list_sets
  std::string sha256;
  std::string problem;  // empty: no problem was found
};

struct SetReport {
  std::string name, title, how_to_get;
  std::vector<std::filesystem::path> looked_in;
  std::optional<std::filesystem::path> folder;  // nothing: not found
  std::vector<FileReport> files;
  bool good() const;  // found, and no file has a problem
};

// Every known set: presence only, no contents are read.
std::vector<SetReport> list_sets(const std::string& data_dir);

// One file of a set, in its folder.
FileReport verify_file(const KnownFile& file, const std::optional<std::filesystem::path>& folder);

// One set: every byte is read and compared with the known size and checksum. Unreadable and corrupt files are
// problems in the report. Throws ConfigError for an unknown name.
SetReport verify_set(const std::string& name, const std::string& data_dir);

// Throws DataError with every problem of the set, or where it was looked for, unless the report is good.
void require_good(const SetReport& report);

}  // namespace tapeformer
