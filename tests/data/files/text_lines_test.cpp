#include "data/files/text_lines.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "data/speech/corpus.h"
#include "data/speech/kaldi_directory.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

constexpr size_t kNone = std::string_view::npos;
const std::string kLatin1 = "caf\xE9";

}  // namespace

TEST_CASE("find_invalid_utf8() returns the offset of the first invalid byte") {
  for (const std::string good : {"", "plain", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xED\x9F\xBF",
                                 "\xEE\x80\x80", "\xF4\x8F\xBF\xBF", "\xC2\x80"})
    CHECK(find_invalid_utf8(good) == kNone);
  // Each string is invalid UTF-8: a continuation byte alone, an overlong form, a surrogate, a code point
  // above U+10FFFF, or a truncated sequence.
  for (const std::string bad : {"\x80", "\xE9", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF",
                                "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82", "\xC3", "\xC3g"})
    CHECK(find_invalid_utf8("ab" + bad) == 2);
}

TEST_CASE("text that is not UTF-8 is an error with its file and line") {
  const TempDir dir;
  write_file(dir / "list", "a good line\n" + kLatin1 + " b\n");
  const std::string expected =
      "list:2: is not UTF-8: byte 4 of the text is 0xE9; convert it to UTF-8, if it is Latin-1 with iconv";
  CHECK(contains(message_of<DataError>([&] { read_lines(dir / "list"); }), expected));
  CHECK(contains(message_of<DataError>([&] { Lexicon::read(dir / "list"); }), expected));
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

TEST_CASE("file names that contain the id or the speaker of an utterance must be UTF-8") {
  const TempDir dir;
  write_file(dir / "recordings" / ("7_" + kLatin1 + "_3.wav"), std::string("no sound"));
  CHECK(contains(message_of<DataError>([&] { read_spoken_digits(dir.path(), "test"); }), "is not UTF-8"));
  write_file(dir / "TRAIN/DR1" / kLatin1 / "SX1.PHN", std::string("0 100 h#\n"));
  CHECK(contains(message_of<DataError>([&] { read_timit(dir.path(), "train", PhoneSet::timit48); }),
                 "is not UTF-8"));
}

TEST_CASE("a byte order mark and Windows line ends are removed") {
  const TempDir dir;
  write_file(dir / "list", std::string("\xEF\xBB\xBF"
                                       "a b\r\nc\r\n"));
  const auto lines = read_lines(dir / "list");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].text == "a b");
  CHECK(lines[1].text == "c");
}
