#include "data/sets/verify.h"

#include <algorithm>

#include "core/base/errors.h"
#include "data/files/gzip.h"
#include "data/sets/directory.h"

namespace tapeformer {
namespace {

FileReport find_file(const CatalogueFile& known, const std::optional<std::filesystem::path>& folder) {
  FileReport file;
  file.name = known.name;
  if (folder) file.path = locate_file(*folder, known.name).value_or("");
  if (file.path.empty()) file.problem = file.name + ": missing";
  return file;
}

DatasetReport report_of(const CatalogueEntry& entry, const std::string& data_dir) {
  DatasetReport report;
  report.entry = &entry;
  report.name = entry.name;
  report.searched_folders = list_candidate_folders(entry, data_dir);
  report.folder = find_dataset_folder(entry, data_dir);
  return report;
}

}  // namespace

bool DatasetReport::is_valid() const {
  return folder &&
         std::all_of(files.begin(), files.end(), [](const FileReport& file) { return file.problem.empty(); });
}

std::vector<DatasetReport> list_dataset_reports(const std::string& data_dir) {
  std::vector<DatasetReport> reports;
  for (const CatalogueEntry& entry : list_catalogue_entries()) {
    if (entry.files.empty()) continue;
    reports.push_back(report_of(entry, data_dir));
    DatasetReport& report = reports.back();
    const auto folder =
        report.folder ? std::optional(find_contents_folder(entry, *report.folder)) : std::nullopt;
    for (const CatalogueFile& file : entry.files) report.files.push_back(find_file(file, folder));
  }
  return reports;
}

FileReport verify_file(const CatalogueFile& known, const std::optional<std::filesystem::path>& folder) {
  FileReport file = find_file(known, folder);
  if (file.path.empty()) return file;
  const Digest expected{known.bytes, std::string(known.sha256)};
  try {
    const Digest found = compute_unpacked_digest(file.path);
    file.actual_bytes = found.bytes;
    if (found != expected)
      file.problem =
          concat_text(file.path.string(), ": expected ", expected.to_string(), ", found ", found.to_string());
  } catch (const DataError& error) {
    file.problem = error.what();
  }
  return file;
}

DatasetReport verify_dataset(const std::string& name, const std::string& data_dir) {
  const CatalogueEntry& entry =
      require_catalogue_entry(name, &CatalogueEntry::has_checksums, "a data set with published checksums");
  DatasetReport report = report_of(entry, data_dir);
  for (const CatalogueFile& file : entry.files) report.files.push_back(verify_file(file, report.folder));
  return report;
}

void check_dataset_report(const DatasetReport& report) {
  if (report.is_valid()) return;
  if (!report.folder) throw MissingDatasetError(*report.entry, report.searched_folders);
  std::string text = report.name + ": not as published, in " + report.folder->string();
  for (const FileReport& file : report.files)
    if (!file.problem.empty()) text += "\n  " + file.problem;
  throw DataError(concat_text(text, "\nto get it: ", report.entry->download_instructions));
}

}  // namespace tapeformer
