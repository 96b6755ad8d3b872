#include "data/sets/fetch.h"

#include <fcntl.h>

#include <algorithm>
#include <fstream>

#include "core/base/errors.h"
#include "core/system/files.h"
#include "core/system/log.h"
#include "data/files/archive.h"
#include "data/files/download.h"
#include "data/files/gzip.h"
#include "data/sets/directory.h"
#include "data/sets/fetch_files.h"
#include "data/sets/wmt14.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Maximum number of bytes by which a .gz file can be larger than its unpacked contents.
constexpr int64_t kGzipOverhead = 1 << 20;
// Maximum number of bytes in an archive that do not belong to data files, for example bytes of headers.
constexpr int64_t kArchiveOverhead = int64_t{1} << 28;

fs::path target_folder(const CatalogueEntry& set, const std::string& data_dir) {
  const fs::path folder = choose_new_folder(set, data_dir);
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error("cannot create the folder " + folder.string() + ": " + error.message());
  return folder;
}

bool is_archive(const std::string& source) {
  return source.ends_with(".tar.gz") || source.ends_with(".tgz") || source.ends_with(".tar") ||
         source.ends_with(".zip");
}

void check_published_digest(const CatalogueFile& file, const fs::path& path, const std::string& origin) {
  const Digest expected{file.bytes, std::string(file.sha256)};
  std::string problem;
  try {
    const Digest found = compute_unpacked_digest(path);
    if (found == expected) return;
    problem = found.to_string();
  } catch (const DataError& error) {
    problem = error.what();
  }
  throw DataError(origin + ": expected " + expected.to_string() + ", found " + problem);
}

bool is_gzip(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return file.get() == 0x1F && file.get() == 0x8B;
}

// Moves the temporary file `part` to `folder` if its contents have the published size and SHA-256. Otherwise
// throws DataError. Error messages contain `origin`, which is the path or URL of the file.
void verify_and_install(const CatalogueFile& file, const fs::path& folder, const TemporaryFile& part,
                        const std::string& origin) {
  check_published_digest(file, part.path, origin);
  const bool packed = is_gzip(part.path);
  rename_path(part.path.string(), (folder / (std::string(file.name) + (packed ? ".gz" : ""))).string());
  // Removes an older plain file, which would take precedence over the .gz file.
  std::error_code ignored;
  if (packed) fs::remove(folder / file.name, ignored);
}

void fetch_file(const CatalogueFile& file, const fs::path& folder, const std::string& source) {
  const std::string base = source + "/" + std::string(file.name);
  const TemporaryFile part{folder / (std::string(file.name) + ".part")};
  for (const std::string& origin : {base + ".gz", base}) {
    log_info("fetching ", origin);
    if (copy_file(origin, part.path, file.bytes + kGzipOverhead))
      return verify_and_install(file, folder, part, origin);
  }
  throw DataError(base + ": no such file, neither with .gz nor without");
}

// Returns the file in `wanted` with the name `name`, plain or .gz, or the end of `wanted`.
auto find_wanted(const std::vector<CatalogueFile>& wanted, const std::string& name) {
  return std::find_if(wanted.begin(), wanted.end(), [&](const CatalogueFile& file) {
    return name == file.name || name == std::string(file.name) + ".gz";
  });
}

// Unpacks the files in `wanted` from an archive, which can contain other files with the same names, such as
// the files of another data set.
void unpack_archive(std::vector<CatalogueFile> wanted, const fs::path& folder, ArchiveReader reader,
                    const std::string& source) {
  std::string problem;  // of the first file with the name of a published file and other contents
  while (const auto member = wanted.empty() ? std::nullopt : reader.next()) {
    const auto file = find_wanted(wanted, member->name);
    if (file == wanted.end()) continue;
    const std::string origin = source + ", " + member->name;
    try {
      const bool packed = member->name.ends_with(".gz");
      if (packed ? member->bytes > file->bytes + kGzipOverhead : member->bytes != file->bytes)
        throw DataError(concat_text(origin, ": expected ", file->bytes, " bytes, found ", member->bytes));
      const TemporaryFile part{folder / (std::string(file->name) + ".part")};
      File out = create_file(part.path);
      reader.unpack(out);
      out.sync();
      verify_and_install(*file, folder, part, origin);
      wanted.erase(file);
    } catch (const DataError& error) {
      if (problem.empty()) problem = error.what();
    }
  }
  if (!wanted.empty() && problem.empty())
    problem =
        concat_text(source, ": contains no file ", wanted.front().name, " or ", wanted.front().name, ".gz");
  if (!wanted.empty()) throw DataError(problem);
}

// Fetches an archive and unpacks the files in `wanted`.
void fetch_archive(const std::vector<CatalogueFile>& wanted, const fs::path& folder,
                   const std::string& source) {
  log_info("fetching ", source);
  if (const fs::path path = find_local_path(source); !path.empty())
    return unpack_archive(wanted, folder, ArchiveReader(path, source, INT64_MAX), source);
  int64_t max_bytes = kArchiveOverhead;
  for (const CatalogueFile& file : wanted) max_bytes += file.bytes;
  const TemporaryFile archive{folder / "archive.part"};
  if (!copy_file(source, archive.path, max_bytes)) throw DataError(source + ": no such file");
  unpack_archive(wanted, folder, ArchiveReader(archive.path, source, max_bytes), source);
}

void fetch_files(const std::vector<CatalogueFile>& wanted, const fs::path& folder,
                 const std::string& source) {
  if (is_archive(source)) return fetch_archive(wanted, folder, source);
  std::error_code ignored;
  if (fs::is_regular_file(find_local_path(source), ignored))
    throw DataError(source + ": expected a folder, or a .tar.gz, .tgz, .tar or .zip archive");
  for (const CatalogueFile& file : wanted) fetch_file(file, folder, source);
}

// Returns the report of list_dataset_reports() on a data set, and throws its problems.
DatasetReport require_files(const std::string& name, const std::string& data_dir) {
  for (DatasetReport& report : list_dataset_reports(data_dir)) {
    if (report.name != name) continue;
    check_dataset_report(report);
    return report;
  }
  throw DataError(name + ": has no list of files");
}

}  // namespace

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  fs::remove(path, ignored);
}

File create_file(const fs::path& path) {
  std::error_code ignored;
  fs::remove(path, ignored);
  return File(path.string(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
}

fs::path find_local_path(const std::string& source) {
  constexpr std::string_view kFile = "file://";
  if (source.starts_with(kFile)) return source.substr(kFile.size());
  return source.find("://") == std::string::npos ? source : "";
}

bool copy_file(const std::string& source, const fs::path& target, int64_t max_bytes) {
  File file = create_file(target);
  if (const fs::path path = find_local_path(source); path.empty()) {
    if (!download(source, file, max_bytes)) return false;
  } else {
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return false;
    const Bytes bytes = read_bytes(path, max_bytes);
    file.write(bytes.data(), bytes.size());
  }
  file.sync();
  return true;
}

bool can_be_fetched(const CatalogueEntry& set) {
  return !set.url.empty();
}

DatasetReport fetch_dataset(const std::string& name, const std::string& data_dir, const std::string& from) {
  const CatalogueEntry& set = require_catalogue_entry(name, can_be_fetched, "a data set that can be fetched");
  std::string source = from.empty() ? std::string(set.url) : from;
  while (source.size() > 1 && source.ends_with('/')) source.pop_back();
  if (from.empty() && !can_download())
    throw DataError(
        concat_text(name, ": cannot be fetched by this program; to get it: ", set.download_instructions));
  const fs::path folder = target_folder(set, data_dir);
  if (set.type == DatasetType::translation) {
    fetch_wmt14(folder, from.empty() ? "" : source);
    sync_directory(folder.string());
    return require_files(name, folder.parent_path().string());
  }
  std::vector<CatalogueFile> wanted;
  for (const CatalogueFile& file : set.files)
    if (!verify_file(file, folder).problem.empty()) wanted.push_back(file);
  if (!wanted.empty()) fetch_files(wanted, folder, source);
  sync_directory(folder.string());
  DatasetReport report = verify_dataset(name, folder.parent_path().string());
  check_dataset_report(report);
  return report;
}

}  // namespace tapeformer
