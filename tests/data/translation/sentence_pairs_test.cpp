#include "data/translation/sentence_pairs.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::string write_text(const std::filesystem::path& path, const std::string& text) {
  write_file(path, text);
  return path.string();
}

}  // namespace

TEST_CASE("lines end with LF or CR LF, byte order marks are removed, and the last line may lack its end") {
  const TempDir dir;
  const SentenceFile file(write_text(dir / "a",
                                     "\xEF\xBB\xBF"
                                     "one\r\ntwo\n\nfour\r"));
  REQUIRE(file.size() == 4);
  CHECK(file.line(0) == "one");
  CHECK(file.line(1) == "two");
  CHECK(file.line(2).empty());
  CHECK(file.line(3) == "four");
  CHECK(file.location(3) == (dir / "a").string() + ":4");
}

TEST_CASE("several files are read in sorted order, plain or compressed, without joining their lines") {
  const TempDir dir;
  write_file(dir / "b.en", std::string("c\n"));
  const std::string first = "a\nb";
  write_file(dir / "a.en", gzipped(Bytes(first.begin(), first.end())));
  const SentenceFile file((dir / "*.en").string());
  REQUIRE(file.size() == 3);
  CHECK(file.line(1) == "b");
  CHECK(file.line(2) == "c");
  CHECK(file.location(2) == (dir / "b.en").string() + ":1");
}

TEST_CASE("different numbers of lines are an error with both numbers and files") {
  const TempDir dir;
  const std::string a = write_text(dir / "a", "1\n2\n3\n"), b = write_text(dir / "b", "1\n2\n");
  CHECK(message_of<DataError>([&] {
          SentencePairs({a, b});
        }) ==
        a + " has 3 lines, and " + b + " has 2; expected one line in each file for each pair of sentences");
  // Equal sums do not hide files with different numbers of lines.
  for (const auto& [name, text] :
       {std::pair("1.x", "1\n2\n"), {"2.x", "3\n"}, {"1.y", "1\n"}, {"2.y", "2\n3\n"}})
    write_file(dir / "many" / name, std::string(text));
  CHECK(message_of<DataError>([&] {
          SentencePairs({(dir / "many/*.x").string(), (dir / "many/*.y").string()});
        }).starts_with((dir / "many/1.x").string() + " has 2 lines, and "));
  std::filesystem::remove(dir / "many/2.y");
  const std::string many = (dir / "many/").string();
  CHECK(message_of<DataError>([&] {
          SentencePairs({many + "*.x", many + "*.y"});
        })
            .starts_with(many + "*.x (2 files from " + many + "1.x to " + many + "2.x) has 3 lines, and " +
                         many + "1.y has 1; "));
}

TEST_CASE("files that are not UTF-8, missing or empty are errors with the file") {
  const TempDir dir;
  const std::string latin = write_text(dir / "latin", "good\nna\xEFve\n");
  CHECK(message_of<DataError>([&] {
          SentenceFile file(latin);
        }).starts_with(latin + ":2: is not UTF-8: byte 3"));
  const std::string utf16 = write_text(dir / "utf16", std::string("\xFF\xFE"
                                                                  "a\0\n\0",
                                                                  6));
  CHECK(contains(message_of<DataError>([&] { SentenceFile file(utf16); }),
                 utf16 + ": is UTF-16, expected UTF-8; convert it with iconv"));
  CHECK(contains(message_of<DataError>([&] { SentenceFile file((dir / "none").string()); }), "none"));
  CHECK(
      contains(message_of<DataError>([&] { SentenceFile file(write_text(dir / "empty", "")); }), "no text"));
}

TEST_CASE("consecutive lines of a chapter are joined") {
  const TempDir dir;
  const SentencePairs pairs({write_text(dir / "en", "a\nb\nc\nd\ne\n"),
                             write_text(dir / "es", "A\n\nC\nD\nE\n"),
                             write_text(dir / "ref", "Gen 1:1\nGen 1:2\nGen 2:1\nI John 2:1\nGen 2:3\n")});
  REQUIRE(pairs.size() == 4);
  CHECK(pairs.source(0) == "a b");
  CHECK(pairs.target(0) == "A");
  CHECK(pairs.source(1) == "c");
  CHECK(pairs.source(2) == "d");
  CHECK(pairs.target(3) == "E");
  CHECK(pairs.source_location(2) == (dir / "en").string() + ":4");
  CHECK(contains(
      message_of<DataError>([&] {
        SentencePairs({(dir / "en").string(), (dir / "es").string(), write_text(dir / "short", "Gen 1:1\n")});
      }),
      "short has 1;"));
}
