#include "data/files/text_encoding.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "data/files/text_lines.h"
#include "data/speech/corpus.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/transcripts.h"
#include "tests/data/support.h"
#include "tests/support/encoded.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// A list with ASCII, Latin, Cyrillic, Chinese and a character outside of the basic plane, in three encodings.
const std::u16string kList16 = u"a caf\u00E9\r\nb \u043F\u0440\u0438\u0432\u0435\u0442 \u4E00\U0001F600\r\n";
const std::u32string kList32 = U"a caf\u00E9\r\nb \u043F\u0440\u0438\u0432\u0435\u0442 \u4E00\U0001F600\r\n";
const std::string kList8 = "a café\r\nb привет 一😀\r\n";

std::string name_of(const std::string& text) {
  return detect_text_encoding(text).name();
}

}  // namespace

TEST_CASE("texts in UTF-16 and UTF-32 are recognised by their byte order mark and converted") {
  for (const bool big_endian : {false, true}) {
    const std::string list16 = encoded(kList16, big_endian), list32 = encoded(kList32, big_endian);
    CHECK(name_of(list16) == "UTF-16");
    CHECK(convert_to_utf8(list16, detect_text_encoding(list16), "list") == kList8);
    CHECK(name_of(list32) == "UTF-32");
    CHECK(convert_to_utf8(list32, detect_text_encoding(list32), "list") == kList8);
  }
}

TEST_CASE("texts without a byte order mark are taken for UTF-8") {
  for (const std::string& text :
       {std::string(), std::string("plain"), kList8, encoded(kList16, false, false)})
    CHECK(name_of(text) == "UTF-8");
  CHECK(detect_text_encoding("\xEF\xBB\xBFplain").mark_bytes == 3);
}

TEST_CASE("an invalid text in UTF-16 is an error with the position of the character") {
  const auto error = [](const std::string& text) {
    return message_of<DataError>([&] { convert_to_utf8(text, detect_text_encoding(text), "list"); });
  };
  CHECK(contains(error(encoded(std::u16string{u'a', char16_t{0xD800}, u'b'})),
                 "list: is UTF-16, but the character at byte 5 is invalid or incomplete"));
  CHECK(contains(error(encoded(std::u16string{u'a', char16_t{0xDC00}})), "the character at byte 5"));
  CHECK(contains(error(encoded(std::u16string(u"ab")) + "\n"), "the character at byte 7"));
  CHECK(contains(error(encoded(std::u32string{U'a', char32_t{0x110000}})), "the character at byte 9"));
}

TEST_CASE("lists in UTF-16 and UTF-32 are read like lists in UTF-8") {
  const TempDir dir;
  for (const auto& bytes : {encoded(kList16), encoded(kList16, true), encoded(kList32)}) {
    write_file(dir / "list", bytes);
    const auto lines = read_lines(dir / "list");
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].text == "a café");
    CHECK(lines[1].text == "b привет 一😀");
  }
  write_file(dir / "lexicon", encoded(std::u16string(u"one W AH N\r\ncafé K AH F EY\r\n")));
  CHECK(Lexicon::read(dir / "lexicon").find("café")->size() == 4);
  write_file(dir / "t.tsv", encoded(std::u16string(u"path\ttext\r\na.wav\tCafé\r\n")));
  REQUIRE(read_transcripts(dir / "t.tsv").size() == 1);
  CHECK(read_transcripts(dir / "t.tsv")[0].text == "Café");
  write_file(dir / "k/a.wav", std::string("no sound"));
  write_file(dir / "k/wav.scp", encoded(std::u16string(u"u rec\r\n")));
  write_file(dir / "k/segments", encoded(std::u16string(u"s u 0 1\r\n")));
  write_file(dir / "k/text", encoded(std::u16string(u"s café\r\n"), true));
  write_file(dir / "k/utt2spk", encoded(std::u32string(U"s ann\r\n")));
  const Corpus corpus = read_kaldi_directory(dir / "k");
  REQUIRE(corpus.utterances.size() == 1);
  CHECK(corpus.utterances[0].words == Words{"café"});
  CHECK(corpus.utterances[0].speaker == "ann");
}

TEST_CASE("a list with NUL bytes that is not UTF-16 is an error with its line") {
  const TempDir dir;
  write_file(dir / "list", std::string("a b\nc \0 d\n", 10));
  CHECK(contains(message_of<DataError>([&] { read_lines(dir / "list"); }), "list:2: contains a NUL byte"));
}
