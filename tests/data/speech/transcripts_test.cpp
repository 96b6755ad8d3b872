#include "data/speech/transcripts.h"

#include <doctest/doctest.h>

#include "core/base/errors.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

Lexicon small_lexicon() {
  Lexicon lexicon;
  for (const char* word :
       {"well", "known", "don't", "u.s.", "mr.", "it", "'em", "a", "b", "café", "x-ray", "two"})
    lexicon.add(word, {"X"});
  return lexicon;
}

Words normalized(const std::string& text) {
  return normalize_transcript(text, small_lexicon()).words;
}

std::string reading_error(const std::filesystem::path& path, const TranscriptColumns& columns = {}) {
  return message_of<DataError>([&] { read_transcripts(path, columns); });
}

}  // namespace

TEST_CASE("transcripts are read from tables with and without a header, with quotes or bars, and from lists") {
  const TempDir dir;
  const auto check_file = [&](const std::string& name, const std::string& text,
                              const TranscriptColumns& columns = {}) {
    write_file(dir / name, text);
    const auto found = read_transcripts(dir / name, columns);
    CAPTURE(name);
    CAPTURE(text);
    REQUIRE(found.size() == 2);
    CHECK(found[0].recording == "a.wav");
    CHECK(found[0].text == "Hello, you \"two\"");
    CHECK(found[1].recording == "b c.wav");
    CHECK(found[1].text == "Yes");
    return found;
  };
  const auto spoken = check_file(
      "t.tsv", "client_id\tpath\tsentence\tage\nann\ta.wav\tHello, you \"two\"\t3\nbob\tb c.wav\tYes\t\n");
  CHECK(spoken[0].speaker == "ann");
  CHECK(spoken[1].speaker == "bob");
  CHECK(spoken[1].location == (dir / "t.tsv").string() + ":3");
  check_file("u.tsv",
             "\xEF\xBB\xBF"
             "a.wav\tHello, you \"two\"\r\nb c.wav\tYes\r\n\r\n");
  check_file("t.csv", "file,text\na.wav,\"Hello, you \"\"two\"\"\"\n\"b c.wav\",Yes\n");
  check_file("metadata.csv", "a.wav|HELLO|Hello, you \"two\"\nb c.wav|YES|Yes\n");
  check_file("odd.csv", "x,y,z,w\n1,a.wav,\"Hello, you \"\"two\"\"\",3\n2,b c.wav,Yes,3\n", {"y", "z", "x"});
  const auto numbered =
      check_file("four.csv", "1,a.wav,\"Hello, you \"\"two\"\"\",3\n2,b c.wav,Yes,3\n", {"2", "3", "4"});
  CHECK(numbered[0].speaker == "3");

  write_file(dir / "list.txt", std::string("a.wav Hello you\nb  Yes\n"));
  const auto list = read_transcripts(dir / "list.txt");
  REQUIRE(list.size() == 2);
  CHECK(list[0].text == "Hello you");
  CHECK(list[1].recording == "b");
}

TEST_CASE("transcripts are read from folders with lists of LibriSpeech or one file per recording") {
  const TempDir dir;
  write_file(dir / "a/1/x.txt", std::string("Hello\nyou\n"));
  write_file(dir / "a/2/y.lab", std::string("Yes\n"));
  const auto transcripts = read_transcripts(dir / "a");
  REQUIRE(transcripts.size() == 2);
  CHECK(transcripts[0].recording == "1/x");
  CHECK(transcripts[0].text == "Hello you");
  write_file(dir / "b/84/84-1.trans.txt", std::string("84-1-0 GO ON\n84-1-1 MAYBE\n"));
  write_file(dir / "b/README.txt", std::string("no transcript\n"));
  CHECK(read_transcripts(dir / "b").size() == 2);
  std::filesystem::create_directories(dir / "empty");
  CHECK(contains(reading_error(dir / "empty"), "contains no transcripts"));
}

TEST_CASE("invalid transcripts are reported with their line") {
  const TempDir dir;
  CHECK(contains(reading_error(dir / "none"), "none: no such file"));
  write_file(dir / "t.csv", std::string("path,text\na,\"open\n"));
  CHECK(contains(reading_error(dir / "t.csv"), "t.csv:2: a quote is not closed"));
  write_file(dir / "t.csv", std::string("path,text\na\n"));
  CHECK(contains(reading_error(dir / "t.csv"), "t.csv:2: expected at least 2 columns, found 1"));
  Faults faults;
  write_file(dir / "t.csv", std::string("path,text\na\n,text\nb,Yes\n"));
  CHECK(read_transcripts(dir / "t.csv", {}, &faults).size() == 1);
  CHECK(faults.size() == 2);
  write_file(dir / "t.csv", std::string("w,x,y,z\n1,2,3,4\n"));
  CHECK(contains(reading_error(dir / "t.csv"), "expected a header with a column for the recording"));
  CHECK(contains(reading_error(dir / "t.csv", {"w", "v", ""}),
                 "there is no column \"v\"; the columns are: w x y z"));
  write_file(dir / "t.tsv", std::string("path\ttext\n"));
  CHECK(contains(reading_error(dir / "t.tsv"), "contains no transcripts"));
}

TEST_CASE("the error for transcripts that are all refused contains the reasons") {
  const TempDir dir;
  Faults faults;
  const auto error = [&](const std::filesystem::path& path) {
    faults.clear();
    return message_of<DataError>([&] { read_transcripts(path, {}, &faults); });
  };
  write_file(dir / "t.csv", std::string("path,text\na\nb\n"));
  CHECK(contains(error(dir / "t.csv"), "t.csv: contains no transcripts; 2 cannot be used:\n"));
  CHECK(contains(error(dir / "t.csv"), "t.csv:2: expected at least 2 columns, found 1"));
  write_file(dir / "t.csv", std::string("path,text\na,\"open\n"));
  CHECK(contains(error(dir / "t.csv"), "t.csv:2: a quote is not closed"));
  write_file(dir / "texts/a.txt", std::string("caf\xE9\n"));
  CHECK(contains(error(dir / "texts"), "texts: contains no transcripts (.trans.txt, .txt or .lab files); 1"));
  CHECK(contains(error(dir / "texts"), "a.txt:1: is not UTF-8"));
  write_file(dir / "lists/b.trans.txt", std::string("a caf\xE9\n"));
  CHECK(contains(error(dir / "lists"), "b.trans.txt:1: is not UTF-8"));
  write_file(dir / "lists/b.trans.txt", std::string("\n"));
  CHECK(contains(error(dir / "lists"), "lists: contains no transcripts (.trans.txt"));
}

TEST_CASE("quoted fields of tables can contain line breaks") {
  const TempDir dir;
  const auto read = [&](const std::string& name, const std::string& text) {
    write_file(dir / name, text);
    std::vector<std::string> found;
    for (const Transcript& transcript : read_transcripts(dir / name))
      found.push_back(transcript.recording + ": " + transcript.text);
    return found;
  };
  using Texts = std::vector<std::string>;
  const Texts expected = {"a.wav: one, two", "b.wav: three \"four\" five", "c.wav: six"};
  CHECK(read("t.csv",
             "path,text\na.wav,\"one,\r\ntwo\"\r\n"
             "b.wav,\"three\n\n\"\"four\"\"\nfive\" \nc.wav,six\n") == expected);
  CHECK(
      read("t.tsv", "path\ttext\na.wav\t\"one,\ntwo\"\nb.wav\t\"three\n\"\"four\"\" five\"\nc.wav\tsix\n") ==
      expected);
  write_file(dir / "h.csv", std::string("path,\"text\n(spoken)\"\na.wav,one\n"));
  CHECK(read_transcripts(dir / "h.csv", {"1", "2", ""}).back().text == "one");
  CHECK(read_transcripts(dir / "t.csv").back().location == (dir / "t.csv").string() + ":8");
  // In tables that are not .csv files, a quote can be a part of the text.
  CHECK(read("q.tsv", "path\ttext\na.wav\t\"one\nb.wav\t\"two\" three\nc.wav\tfour\"\n") ==
        Texts{"a.wav: \"one", "b.wav: \"two\" three", "c.wav: four\""});
  // An unclosed quote does not join its row with the rows up to the next quote.
  write_file(dir / "u.csv", std::string("path,text\na.wav,\"one\nb.wav,two\nc.wav,\"three\"\nd.wav,four\n"));
  Faults faults;
  CHECK(read_transcripts(dir / "u.csv", {}, &faults).size() == 3);
  REQUIRE(faults.size() == 1);
  CHECK(contains(faults[0], "u.csv:2: a quote is not closed"));
}

TEST_CASE("normalize_transcript() ignores case, punctuation and typographic marks") {
  CHECK(normalized("“Well-known”, don’t…") == Words{"well", "known", "don't"});
  CHECK(normalized("X-Ray: Mr. CAFÉ (a/b) — U.S.!") == Words{"x-ray", "mr.", "café", "a", "b", "u.s."});
  CHECK(normalized("'em it's? 'It' -- a.") == Words{"'em", "it's", "it", "a"});
  CHECK(normalized(" … – !") == Words{});
  const NormalizedText text = normalize_transcript("Two 3.5 Zork's 50% R&B zork-a & ÉTÉ", small_lexicon());
  CHECK(text.words == Words{"two", "3.5", "zork's", "50%", "r&b", "zork", "a", "&", "été"});
  CHECK(text.unknown == Words{"3.5", "zork's", "50%", "r&b", "zork", "&", "été"});
}
