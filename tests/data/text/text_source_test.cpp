#include "data/text/text_source.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include "core/base/errors.h"
#include "tests/data/support.h"
#include "tests/support/encoded.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string all_text(const TextSource& source) {
  std::string text(static_cast<size_t>(source.size()), '\0');
  source.read(0, source.size(), reinterpret_cast<uint8_t*>(text.data()));
  return text;
}

Bytes bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

}  // namespace

TEST_CASE("a path selects a file, a folder or a pattern, plain or gzip, in the order of the names") {
  const TempDir dir;
  write_file(dir / "b.txt", std::string("second "));
  write_file(dir / "sub/c.txt", std::string("third"));
  write_file(dir / "a.gz", gzipped(bytes_of("first ")));
  write_file(dir / "empty.txt", std::string());
  write_file(dir / ".hidden", std::string("no"));
  const std::string folder = dir.path().string();
  CHECK(all_text(TextSource(list_text_files(folder))) == "first second third");
  CHECK(all_text(TextSource(list_text_files(folder + "/*.txt"))) == "second ");
  CHECK(all_text(TextSource(list_text_files(folder + "/a.gz"))) == "first ");
  const TextSource source(list_text_files(folder));
  CHECK(source.view(7, 100) == "econd ");
  CHECK(source.location(7) == folder + "/b.txt:1 (byte 2)");
  CHECK_THROWS_AS(source.view(18, 1), ShapeError);
  write_file(dir / "lines.txt", std::string("one\ntwo\n\nfour"));
  const std::string path = (dir / "lines.txt").string();
  const TextSource lines({path});
  CHECK(lines.location(3) == path + ":1 (byte 4)");
  CHECK(lines.location(4) == path + ":2 (byte 5)");
  CHECK(lines.location(10) == path + ":4 (byte 11)");
}

TEST_CASE("a mapped file that becomes shorter is an error") {
  const TempDir dir;
  const std::string path = (dir / "a.txt").string();
  write_file(path, std::string(1000000, 'x'));
  const TextSource source({path});
  CHECK(source.view(999999, 1) == "x");
  write_file(path, std::string("short"));
  CHECK(message_of<DataError>([&] { all_text(source); }) ==
        path + ": expected 1000000 bytes, found 5; the file was truncated while it was in use");
}

TEST_CASE("errors about unreadable files contain their names") {
  const TempDir dir;
  const std::string folder = dir.path().string();
  const auto message = [&](const std::string& path) {
    return message_of<DataError>([&] { TextSource source(list_text_files(path)); });
  };
  CHECK(message(folder) == folder + ": the folder contains no files");
  write_file(dir / ".hidden/a.txt", std::string("text"));
  CHECK(message(folder) ==
        folder + ": the folder contains no files except 1 hidden files, which are not read");
  write_file(dir / "a.txt", std::string("text"));
  CHECK(message(folder + "/none.txt") == folder + "/none.txt: no such file");
  CHECK(message(folder + "/*.md") == folder + "/*.md: matches no file");
  std::filesystem::create_directory(dir / "folder.md");
  CHECK(contains(message(folder + "/*.md"), "/*.md: matches only folders"));
  write_file(dir / "empty", std::string());
  CHECK(message(folder + "/empty") == folder + "/empty: no text: the size is 0 bytes");
  std::filesystem::create_symlink("missing", dir / "link");
  CHECK(message(folder) == folder + "/link: no such file");
  std::filesystem::remove(dir / "link");
  std::filesystem::create_directory_symlink(".", dir / "loop");
  CHECK(message(folder).empty());
  Bytes packed = gzipped(bytes_of(std::string(1000, 'x') + "end"));
  packed.resize(packed.size() / 2);
  write_file(dir / "z.gz", packed);
  CHECK(contains(message(folder), "z.gz: the gzip data ends early"));
  std::filesystem::remove(dir / "z.gz");
  if (getuid() == 0) return;  // the superuser can read all files
  std::filesystem::permissions(dir / "a.txt", std::filesystem::perms::none);
  CHECK(contains(message(folder), "a.txt"));
}

TEST_CASE("a UTF-8 byte order mark is not a part of the text, and UTF-16 is recognised") {
  const TempDir dir;
  const std::string mark = "\xEF\xBB\xBF", long_text(300000, 'x');  // a mapped file
  write_file(dir / "a.txt", mark + "first ");
  write_file(dir / "b.txt", mark + long_text);
  write_file(dir / "c.gz", gzipped(bytes_of(mark + " third")));
  write_file(dir / "d.txt", mark);
  const TextSource source(list_text_files(dir.path().string()));
  CHECK(all_text(source) == "first " + long_text + " third");
  CHECK(source.location(6) == (dir / "b.txt").string() + ":1 (byte 4)");
  CHECK(source.describe_encoding_problem().empty());
  write_file(dir / "b c.txt", encoded(std::u16string(u"text\n"), true));
  const std::string path = (dir / "b c.txt").string();
  CHECK(TextSource(list_text_files(dir.path().string())).describe_encoding_problem() ==
        path + ": is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8");
  write_file(dir / "b.gz", gzipped(bytes_of(encoded(std::u16string(u"text\n")))));
  CHECK(contains(TextSource({dir / "b.gz"}).describe_encoding_problem(),
                 "b.gz: is UTF-16, expected UTF-8; convert it with iconv -f UTF-16 -t UTF-8"));
}
