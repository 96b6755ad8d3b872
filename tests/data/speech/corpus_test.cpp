#include "data/speech/corpus.h"

#include <doctest/doctest.h>

#include <set>

#include "core/base/errors.h"
#include "tests/data/stand_ins.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

std::set<std::string> speakers(const Corpus& corpus) {
  std::set<std::string> result;
  for (const Utterance& utterance : corpus.utterances) result.insert(utterance.speaker);
  return result;
}

}  // namespace

namespace {

void check_an4(const std::filesystem::path& folder) {
  const Corpus train = read_an4(folder, "train"), test = read_an4(folder, "test");
  CHECK(train.utterances.size() == 948);
  CHECK(test.utterances.size() == 130);
  CHECK(speakers(train).size() == 74);
  CHECK(speakers(test).size() == 10);
  for (const Utterance& utterance : test.utterances) CHECK(!utterance.phones.empty());
  const Tensor features = read_mfc(train.utterances[0].path);
  CHECK(features.size(1) == 13);
  CHECK(features.size(0) > 20);
}

void check_digits(const std::filesystem::path& folder) {
  const Corpus train = read_spoken_digits(folder, "train"), test = read_spoken_digits(folder, "test");
  CHECK(train.utterances.size() == 2700);
  CHECK(test.utterances.size() == 300);
  CHECK(speakers(test).size() == 6);
  CHECK(test.utterances[0].words == Words{"zero"});
  CHECK(contains(message_of<ConfigError>([&] { read_spoken_digits(folder, "tset"); }), "not \"tset\""));
}

}  // namespace

TEST_CASE("generated AN4 and spoken digits of full size are read") {
  const TempDir dir;
  write_stand_in_an4(dir / "an4");
  check_an4(dir / "an4");
  write_stand_in_fsdd(dir / "fsdd");
  check_digits(dir / "fsdd");
}

TEST_CASE("AN4 has 948 train utterances of 74 speakers and 130 test utterances of 10 speakers") {
  if (!have_real("an4")) {
    MESSAGE("skipped: no an4 in $TAPEFORMER_DATA");
    return;
  }
  const auto folder =
      std::filesystem::exists(real_set("an4") / "etc") ? real_set("an4") : real_set("an4") / "an4";
  check_an4(folder);
  CHECK(read_an4(folder, "test").utterances[1].phones == Words{"IH", "R", "EY", "S", "S", "IY", "K", "Y",
                                                               "UW", "K", "Y", "UW", "EH", "F", "S", "EH",
                                                               "V", "AH", "N"});
}

TEST_CASE("the spoken digits have 300 test and 2,700 train recordings") {
  if (!have_real("fsdd")) {
    MESSAGE("skipped: no fsdd in $TAPEFORMER_DATA");
    return;
  }
  check_digits(real_set("fsdd"));
}

TEST_CASE("a small AN4 directory is read, and its faults are errors") {
  const TempDir dir;
  write_file(dir / "etc/an4.dic", std::string("A  AH\nA(2)  EY\nB  B IY\n"));
  write_file(dir / "etc/an4_train.fileids", std::string("x/spk/u1\nx/spk/u2\n"));
  write_file(dir / "etc/an4_train.transcription", std::string("<s> A B </s> (u1)\nB (u2)\n"));
  const Corpus corpus = read_an4(dir.path(), "train");
  CHECK(corpus.utterances[0].phones == Words{"AH", "B", "IY"});
  CHECK(corpus.utterances[0].path == dir / "feat/x/spk/u1.mfc");
  write_file(dir / "etc/an4_train.transcription", std::string("<s> </s> (u1)\nB (u2)\n"));
  CHECK(contains(read_an4(dir.path(), "train").utterances[0].fault, "transcription:1: an empty transcript"));
  write_file(dir / "etc/an4_train.transcription", std::string("A B (u1)\nB (u3)\n"));
  CHECK(contains(message_of<DataError>([&] { read_an4(dir.path(), "train"); }),
                 "transcription:2: expected the words"));
  write_file(dir / "etc/an4_train.transcription", std::string("A B (u1)\nC (u2)\n"));
  CHECK(contains(message_of<DataError>([&] { read_an4(dir.path(), "train"); }),
                 "lacks words of 1 utterances: C"));
}

TEST_CASE("utterances with unknown words are removed with UnknownWords::drop") {
  Lexicon lexicon;
  lexicon.add("a", {"AH"});
  Corpus corpus{"c", std::vector<Utterance>(2)};
  corpus.utterances[0].words = {"a", "zork"};
  corpus.utterances[1].words = {"A", "a"};
  const PhoneAssignmentReport report = assign_phones(corpus, lexicon, UnknownWordPolicy::drop);
  CHECK(report.dropped_count == 1);
  CHECK(report.unknown_words == Words{"zork"});
  REQUIRE(corpus.utterances.size() == 1);
  CHECK(corpus.utterances[0].phones == Words{"AH", "AH"});
}

TEST_CASE("TIMIT and LibriSpeech directories are read") {
  const TempDir dir;
  write_file(dir / "TRAIN/DR1/FCJF0/SI1027.PHN",
             std::string("0 100 h#\n100 200 ix\n200 300 q\n300 400 zh\n"));
  write_file(dir / "TRAIN/DR1/FCJF0/SA1.PHN", std::string("0 100 h#\n"));
  write_file(dir / "TEST/DR1/FELC0/SI756.PHN", std::string("0 100 h#\n"));
  // The speaker FAKS0 is not in the core test set, so read_timit() ignores the utterances of FAKS0.
  write_file(dir / "TEST/DR1/FAKS0/SI943.PHN", std::string("0 100 h#\n"));
  const Corpus train = read_timit(dir.path(), "train", PhoneSet::timit39);
  REQUIRE(train.utterances.size() == 1);
  CHECK(train.utterances[0].id == "fcjf0_si1027");
  CHECK(train.utterances[0].phones == Words{"sil", "ih", "sh"});
  const Corpus test = read_timit(dir.path(), "test", PhoneSet::timit48);
  REQUIRE(test.utterances.size() == 1);
  CHECK(test.utterances[0].speaker == "felc0");
  write_file(dir / "TRAIN/DR1/FCJF0/SI1027.PHN", std::string("0 100 h#\n100 200 foo\n"));
  const Corpus wrong = read_timit(dir.path(), "train", PhoneSet::timit39);
  CHECK(contains(wrong.utterances[0].fault, "SI1027.PHN:2: \"foo\" is not a phone of TIMIT"));
  CHECK(wrong.utterances[0].phones.empty());
  write_file(dir / "TRAIN/DR2/FCJF0/SI1027.PHN", std::string("0 100 h#\n"));
  CHECK(contains(message_of<DataError>([&] { read_timit(dir.path(), "train", PhoneSet::timit39); }),
                 "\"fcjf0_si1027\" is a duplicate of"));

  write_file(dir / "dev-clean/84/121/84-121.trans.txt", std::string("84-121-0 GO ON\n84-121-1 MAYBE\n"));
  const Corpus libri = read_librispeech(dir.path(), "dev-clean");
  REQUIRE(libri.utterances.size() == 2);
  CHECK(libri.utterances[0].words == Words{"GO", "ON"});
  CHECK(libri.utterances[0].speaker == "84");
  CHECK(libri.utterances[1].path == dir / "dev-clean/84/121/84-121-1.flac");
  write_file(dir / "dev-clean/84/122/84-122.trans.txt", std::string("84-122-0 GO\n84-122-1\n"));
  const Corpus empty = read_librispeech(dir.path(), "dev-clean");
  REQUIRE(empty.utterances.size() == 4);
  CHECK(contains(empty.utterances[3].fault, "84-122.trans.txt:2: an empty transcript"));
  CHECK(empty.utterances[2].fault.empty());
  write_file(dir / "dev-clean/84/122/84-122.trans.txt", std::string("84-122-0 GO\n84-121-1 ON\n"));
  CHECK(contains(message_of<DataError>([&] { read_librispeech(dir.path(), "dev-clean"); }),
                 "84-122.trans.txt:2: \"84-121-1\" is a duplicate of"));
}

TEST_CASE("a feature file of the wrong size is an error with the path") {
  const TempDir dir;
  std::string bytes("\0\0\0\2\x3f\x80\0\0\xc0\0\0\0", 12);
  write_file(dir / "a.mfc", bytes);
  CHECK(read_mfc(dir / "a.mfc", 2).to_vector() == std::vector<double>{1, -2});
  CHECK(contains(message_of<DataError>([&] { read_mfc(dir / "a.mfc"); }), "a multiple of 13"));
  bytes.pop_back();
  write_file(dir / "a.mfc", bytes);
  CHECK(contains(message_of<DataError>([&] { read_mfc(dir / "a.mfc", 2); }),
                 "the number 2 and 7 further bytes"));
  write_file(dir / "a.mfc", std::string());
  CHECK(contains(message_of<DataError>([&] { read_mfc(dir / "a.mfc", 2); }), "a.mfc: is empty"));
}
