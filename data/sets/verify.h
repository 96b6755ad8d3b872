// Reports on data sets. A report says whether the files exist and have the published sizes and checksums. All
// functions only read files and are thread-safe.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/sets/catalogue.h"

namespace tapeformer {

struct FileReport {
  std::string name;            // original name of the file
  std::filesystem::path path;  // plain or .gz file; empty if the file is missing
  int64_t actual_bytes = 0;    // size of the unpacked contents; 0 if the contents were not read
  std::string problem;         // description of the problem; empty if there is none
};

struct DatasetReport {
  const CatalogueEntry* entry = nullptr;
  std::string name;
  std::vector<std::filesystem::path> searched_folders;
  std::optional<std::filesystem::path> folder;  // std::nullopt if the data set was not found
  std::vector<FileReport> files;
  // Returns whether the data set was found and no file has a problem.
  bool is_valid() const;
};

// Returns a report on every data set for which the catalogue lists files. Checks only whether these files
// exist.
std::vector<DatasetReport> list_dataset_reports(const std::string& data_dir);

// Compares a file in `folder` with its published size and checksum.
FileReport verify_file(const CatalogueFile& file, const std::optional<std::filesystem::path>& folder);

// Compares every file of a data set with its published size and checksum. If a file is missing or different,
// the function does not throw; FileReport::problem describes the problem. Throws ConfigError if the name is
// unknown or the data set has no published checksums.
DatasetReport verify_dataset(const std::string& name, const std::string& data_dir);

// Does nothing if report.is_valid() is true. Otherwise, throws MissingDatasetError if the data set was not
// found, or DataError with the problems of all files.
void check_dataset_report(const DatasetReport& report);

}  // namespace tapeformer
