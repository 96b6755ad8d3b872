#include "data/text_lines.h"

#include <doctest/doctest.h>

#include "core/errors.h"
#include "data/corpus.h"
#include "data/kaldi_directory.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

const std::string kLatin1 = "caf\xE9";

}  // namespace

TEST_CASE("lines that are not UTF-8 were lost with the first checkpoint: they are refused by file and line") {
  const TempDir dir;
  write_file(dir / "list", "a good line\n" + kLatin1 + " b\n");
  const std::string expected =
      "list:2: is not UTF-8: byte 4 of the text is 0xE9; convert it, for example with iconv";
  CHECK(contains(message_of<DataError>([&] { read_lines(dir / "list"); }), expected));
  CHECK(contains(message_of<DataError>([&] { Lexicon::read(dir / "list"); }), expected));
  CHECK(contains(message_of<DataError>([&] { read_phones(dir / "list"); }), expected));
  CHECK(contains(message_of<DataError>([] { PhoneTable({"a", kLatin1}); }), "is not UTF-8"));
  CHECK(PhoneTable({"\xC3\xA9"}).contains("\xC3\xA9"));

  write_file(dir / "k/a.wav", std::string("no sound"));
  for (const std::string file : {"wav.scp", "text", "utt2spk"}) {
    write_file(dir / "k/wav.scp", std::string("u a.wav\n"));
    write_file(dir / "k/text", std::string("u a\n"));
    write_file(dir / "k/utt2spk", std::string("u s\n"));
    CHECK(read_kaldi_directory(dir / "k").utterances.size() == 1);
    write_file(dir / "k" / file, "u " + kLatin1 + "\n");
    CHECK(
        contains(message_of<DataError>([&] { read_kaldi_directory(dir / "k"); }), file + ":1: is not UTF-8"));
  }
}

TEST_CASE("names of files that give ids and speakers must be UTF-8") {
  const TempDir dir;
  write_file(dir / "recordings" / ("7_" + kLatin1 + "_3.wav"), std::string("no sound"));
  CHECK(contains(message_of<DataError>([&] { read_spoken_digits(dir.path(), "test"); }), "is not UTF-8"));
  write_file(dir / "TRAIN/DR1" / kLatin1 / "SX1.PHN", std::string("0 100 h#\n"));
  CHECK(contains(message_of<DataError>([&] { read_timit(dir.path(), "train", PhoneSet::timit48); }),
                 "is not UTF-8"));
}

TEST_CASE("a byte order mark and Windows line ends are no part of a text") {
  const TempDir dir;
  write_file(dir / "list", std::string("\xEF\xBB\xBF"
                                       "a b\r\nc\r\n"));
  const auto lines = read_lines(dir / "list");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].text == "a b");
  CHECK(lines[1].text == "c");
}
