#include "data/fetch.h"

#include "core/errors.h"
#include "core/files.h"
#include "core/log.h"
#include "data/directory.h"
#include "data/download.h"
#include "data/gzip.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// gzip makes bytes that it cannot pack a little longer.
constexpr int64_t kGzipSlack = 1 << 20;

// A file that goes at the end of the scope unless it was renamed before.
struct Part {
  fs::path path;
  ~Part() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
};

fs::path target_folder(const KnownSet& set, const std::string& data_dir) {
  fs::path folder = candidate_folders(set, data_dir).front();
  if (folder == set.system_folder)
    throw DataError("no data directory to fetch into; name one with --data-dir or TAPEFORMER_DATA");
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error("cannot make " + folder.string() + ": " + error.message());
  return folder;
}

bool is_web(const std::string& from) {
  return from.starts_with("http://") || from.starts_with("https://");
}

std::optional<Bytes> get(const std::string& place, int64_t max_bytes) {
  if (is_web(place)) return download(place, max_bytes);
  const fs::path path = place.starts_with("file://") ? place.substr(7) : place;
  if (!fs::exists(path)) return std::nullopt;
  return read_bytes(path, max_bytes);
}

void check_published(const KnownFile& file, const fs::path& path, const std::string& origin) {
  const Digest expected{file.bytes, file.crc32};
  std::string problem;
  try {
    const Digest found = digest_unpacked(path);
    if (found == expected) return;
    problem = found.to_string();
  } catch (const DataError& error) {
    problem = error.what();
  }
  throw DataError(origin + ": expected " + expected.to_string() + ", found " + problem);
}

void fetch_file(const KnownFile& file, const fs::path& folder, const std::string& from) {
  const std::string place = from + "/" + std::string(file.name);
  std::string found_at = place + ".gz";
  log_info("fetching ", found_at);
  std::optional<Bytes> bytes = get(found_at, file.bytes + kGzipSlack);
  if (!bytes) bytes = get(found_at = place, file.bytes + kGzipSlack);
  if (!bytes) throw DataError(place + ": no such file, neither with .gz nor without");

  const bool packed = bytes->size() >= 2 && (*bytes)[0] == 0x1F && (*bytes)[1] == 0x8B;
  const fs::path target = folder / (std::string(file.name) + (packed ? ".gz" : ""));
  const Part part{target.string() + ".part"};
  replace_file(part.path.string(), as_text(*bytes, bytes->size()));
  check_published(file, part.path, found_at);
  std::error_code error;
  fs::rename(part.path, target, error);
  if (error) throw std::runtime_error("cannot write " + target.string() + ": " + error.message());
  // An older plain file would be found before the packed one.
  if (packed) fs::remove(folder / file.name, error);
}

}  // namespace

SetReport fetch_set(const std::string& name, const std::string& data_dir, const std::string& from) {
  const KnownSet& set = known_set(name);
  std::string source = from.empty() ? std::string(set.url) : from;
  while (source.size() > 1 && source.ends_with('/')) source.pop_back();
  if (source.empty() || (from.empty() && !can_download()))
    throw DataError(concat_text(name, ": cannot be fetched by this program; to get it: ", set.how_to_get));
  const fs::path folder = target_folder(set, data_dir);
  for (const KnownFile& file : set.files)
    if (!verify_file(file, folder).problem.empty()) fetch_file(file, folder, source);
  SetReport report = verify_set(name, folder.parent_path().string());
  require_good(report);
  return report;
}

}  // namespace tapeformer
