#include "data/sets/wmt14.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/base/errors.h"
#include "core/system/log.h"
#include "data/files/archive.h"
#include "data/files/file.h"
#include "data/sets/fetch_files.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kWmtLanguages{"en", "de"};
constexpr int64_t kMaxArchiveBytes = int64_t{1} << 32, kMaxUnpackedArchive = int64_t{1} << 35;

// Files of an archive. A file is plain text, or SGML if its name ends with .sgm.
struct WmtArchive {
  std::string split, server, archive;
  // Names of the English and German file. The archive has the files of at least one element.
  std::vector<std::array<std::string, 2>> names;
};

std::vector<WmtArchive> list_archives() {
  const auto plain = [](const std::string& name) { return std::array{name + ".en", name + ".de"}; };
  const auto sgml = [](const std::string& name) {
    return std::array{name + "-src.en.sgm", name + "-ref.de.sgm"};
  };
  const std::string wmt13 = "https://www.statmt.org/wmt13", wmt14 = "https://www.statmt.org/wmt14";
  return {{"train", wmt13, "training-parallel-europarl-v7.tgz", {plain("europarl-v7.de-en")}},
          {"train", wmt13, "training-parallel-commoncrawl.tgz", {plain("commoncrawl.de-en")}},
          {"train", wmt14, "training-parallel-nc-v9.tgz", {plain("news-commentary-v9.de-en")}},
          {"valid", wmt14, "dev.tgz", {plain("newstest2013"), sgml("newstest2013")}},
          {"test", wmt14, "test-full.tgz", {sgml("newstest2014-deen")}}};
}

// Returns the segments of an SGML file as lines.
std::string extract_segments(const std::string& sgml, const std::string& origin) {
  constexpr std::string_view kBegin = "<seg", kEnd = "</seg>", kSpace = " \t\r\n";
  std::string lines;
  for (size_t at = 0; (at = sgml.find(kBegin, at)) != std::string::npos;) {
    const size_t begin = sgml.find('>', at), end = sgml.find(kEnd, at);
    if (begin == std::string::npos || end == std::string::npos || begin > end)
      throw DataError(origin + ": a segment has no end");
    std::string text = sgml.substr(begin + 1, end - begin - 1);
    std::replace(text.begin(), text.end(), '\n', ' ');
    text.erase(0, text.find_first_not_of(kSpace));
    text.erase(text.find_last_not_of(kSpace) + 1);
    lines += text + "\n";
    at = end;
  }
  if (lines.empty()) throw DataError(origin + ": has no segments");
  return lines;
}

// The temporary files of a split, in the order of kWmtLanguages.
struct WmtFiles {
  explicit WmtFiles(const fs::path& path)
      : files{{{path.string() + ".en.part"}, {path.string() + ".de.part"}}} {}
  std::array<TemporaryFile, 2> files;
};

// Appends the lines of a file, and returns their number.
int64_t append_wmt_lines(const fs::path& from, File& to) {
  Bytes bytes = read_bytes(from, kMaxUnpackedArchive);
  if (!bytes.empty() && bytes.back() != '\n') bytes.push_back('\n');
  to.write(bytes.data(), bytes.size());
  return std::count(bytes.begin(), bytes.end(), '\n');
}

// Unpacks the files of a set as plain text.
void unpack_files(const WmtArchive& set, const fs::path& archive, const std::string& origin,
                  const WmtFiles& targets) {
  ArchiveReader reader(archive, origin, kMaxUnpackedArchive);
  std::array<bool, 2> is_found{};
  while (const auto member = reader.next())
    for (const auto& names : set.names)
      for (size_t i = 0; i < names.size(); ++i) {
        if (is_found[i] || member->name != names[i]) continue;
        const fs::path& path = targets.files[i].path;
        File file = create_file(path);
        reader.unpack(file);
        if (member->name.ends_with(".sgm")) {
          const std::string lines = extract_segments(read_file(path.string()), origin + ", " + member->name);
          File plain = create_file(path);
          plain.write(lines.data(), lines.size());
        }
        is_found[i] = true;
      }
  for (size_t i = 0; i < is_found.size(); ++i)
    if (!is_found[i]) throw DataError(origin + ": contains no file " + set.names.front()[i]);
}

void fetch_archive_lines(const WmtArchive& set, const fs::path& folder, const std::string& from,
                         std::array<File, 2>& split) {
  const std::string origin = (from.empty() ? set.server : from) + "/" + set.archive;
  log_info("fetching ", origin);
  const TemporaryFile download{folder / "archive.part"};
  fs::path archive = find_local_path(origin);
  if (archive.empty()) {
    if (!copy_file(origin, download.path, kMaxArchiveBytes)) throw DataError(origin + ": no such file");
    archive = download.path;
  }
  const WmtFiles parts(folder / "corpus");
  unpack_files(set, archive, origin, parts);
  const int64_t lines = append_wmt_lines(parts.files[0].path, split[0]);
  const int64_t translated = append_wmt_lines(parts.files[1].path, split[1]);
  if (lines != translated)
    throw DataError(concat_text(origin, ": the English file has ", lines, " lines, and the German file has ",
                                translated));
  log_info(set.split, ": ", lines, " pairs of ", set.archive);
}

}  // namespace

void fetch_wmt14(const fs::path& folder, const std::string& from) {
  const std::vector<WmtArchive> archives = list_archives();
  for (const std::string split : {"train", "valid", "test"}) {
    const auto target = [&](size_t i) { return folder / (split + "." + kWmtLanguages[i]); };
    if (path_exists(target(0)) && path_exists(target(1))) continue;
    const WmtFiles temporary(folder / split);
    std::array<File, 2> files{create_file(temporary.files[0].path), create_file(temporary.files[1].path)};
    for (const WmtArchive& set : archives)
      if (set.split == split) fetch_archive_lines(set, folder, from, files);
    for (File& file : files) file.sync();
    for (size_t i = 0; i < files.size(); ++i)
      rename_path(temporary.files[i].path.string(), target(i).string());
  }
}

}  // namespace tapeformer
