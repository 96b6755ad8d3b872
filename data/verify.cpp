#include "data/verify.h"

#include <algorithm>
#include <iomanip>

#include "core/errors.h"
#include "data/directory.h"
#include "data/gzip.h"

namespace tapeformer {
namespace {

std::string digest_text(const Digest& digest) {
  std::ostringstream text;
  text << digest.bytes << " bytes with CRC-32 " << std::hex << std::setfill('0') << std::setw(8)
       << digest.crc32;
  return text.str();
}

SetReport find(const KnownSet& set, const std::string& data_dir) {
  SetReport report{std::string(set.name),       std::string(set.title),
                   std::string(set.how_to_get), candidate_folders(set, data_dir),
                   locate_set(set, data_dir),   {}};
  for (const KnownFile& known : set.files) {
    FileReport file;
    file.name = known.name;
    file.expected_bytes = known.bytes;
    file.expected_crc32 = known.crc32;
    if (report.folder) file.path = locate_file(*report.folder, known.name).value_or("");
    if (file.path.empty()) file.problem = file.name + ": missing";
    report.files.push_back(std::move(file));
  }
  return report;
}

void read_and_compare(FileReport& file) {
  try {
    const Digest expected{file.expected_bytes, file.expected_crc32};
    const Digest found = digest_unpacked(file.path);
    file.bytes = found.bytes;
    file.crc32 = found.crc32;
    if (found != expected)
      file.problem = concat_text(file.path.string(), ": expected ", digest_text(expected), ", found ",
                                 digest_text(found));
  } catch (const DataError& error) {
    file.problem = error.what();
  }
}

}  // namespace

bool SetReport::good() const {
  return folder &&
         std::all_of(files.begin(), files.end(), [](const FileReport& file) { return file.problem.empty(); });
}

std::vector<SetReport> list_sets(const std::string& data_dir) {
  std::vector<SetReport> reports;
  for (const KnownSet& set : known_sets()) reports.push_back(find(set, data_dir));
  return reports;
}

SetReport verify_set(const std::string& name, const std::string& data_dir) {
  SetReport report = find(known_set(name), data_dir);
  for (FileReport& file : report.files)
    if (!file.path.empty()) read_and_compare(file);
  return report;
}

void require_good(const SetReport& report) {
  if (report.good()) return;
  if (!report.folder) throw DataError(missing_set_text(known_set(report.name), report.looked_in));
  std::string text = report.name + ": not as published, in " + report.folder->string();
  for (const FileReport& file : report.files)
    if (!file.problem.empty()) text += "\n  " + file.problem;
  throw DataError(concat_text(text, "\nto get it: ", report.how_to_get));
}

}  // namespace tapeformer
