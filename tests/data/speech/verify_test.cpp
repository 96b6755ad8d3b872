#include "data/speech/verify.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/errors.h"
#include "data/audio/audio.h"
#include "tests/data/stand_ins.h"

using namespace tapeformer;
using namespace tapeformer::test;

namespace {

// Writes a recording that is not silent.
void write_ramps(const std::filesystem::path& path, int64_t rate = 16000, size_t count = 8000) {
  std::vector<float> samples(count);
  for (size_t i = 0; i < count; ++i) samples[i] = static_cast<float>(i % 100) / 100;
  std::filesystem::create_directories(path.parent_path());
  write_wav(path, samples, rate);
}

std::string mfc(int frames, float value = 1) {
  std::string bytes;
  const auto append = [&](uint32_t word) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(word >> shift);
  };
  append(static_cast<uint32_t>(13 * frames));
  for (int i = 0; i < 13 * frames; ++i) append(std::bit_cast<uint32_t>(value + static_cast<float>(i)));
  return bytes;
}

// Checks that find_speech_faults() returns exactly the expected faults, in any order.
void check_faults(const std::string& layout, const std::filesystem::path& path,
                  std::vector<std::string> expected) {
  Faults found = find_speech_faults(layout, path);
  for (const std::string& part : expected) {
    const auto location =
        std::find_if(found.begin(), found.end(), [&](const auto& f) { return contains(f, part); });
    INFO(part);
    CHECK(location != found.end());
    if (location != found.end()) found.erase(location);
  }
  for (const std::string& fault : found) FAIL_CHECK("not expected: " << fault);
}

}  // namespace

TEST_CASE("the check of AN4 reports the line of every fault") {
  const TempDir dir;
  for (const std::string split : {"train", "test"}) {
    write_file(dir / "etc/an4.dic", std::string("A  AH\nB  B IY\n"));
    write_file(dir / ("etc/an4_" + split + ".fileids"), "s/" + split + "1\ns/" + split + "2\n");
    write_file(dir / ("etc/an4_" + split + ".transcription"),
               "<s> A B </s> (" + split + "1)\nB (" + split + "2)\n");
    for (const char* number : {"1", "2"}) write_file(dir / ("feat/s/" + split + number + ".mfc"), mfc(30));
  }
  check_faults("an4", dir.path(), {});
  std::filesystem::create_directories(dir / "outer/an4");
  std::filesystem::copy(dir / "etc", dir / "outer/an4/etc", std::filesystem::copy_options::recursive);
  std::filesystem::copy(dir / "feat", dir / "outer/an4/feat", std::filesystem::copy_options::recursive);
  check_faults("an4", dir / "outer", {});

  write_file(dir / "etc/an4.dic", std::string("A  AH\nC\nB  B IY\n"));
  write_file(dir / "etc/an4_train.fileids",
             std::string("s/train1\ns/train2\ns/train1\ns/train4\ns/train5\n"));
  write_file(dir / "etc/an4_train.transcription",
             std::string("A Z (train1)\nB (train3)\nA (train1)\n<s> </s> (train4)\n"));
  write_file(dir / "feat/s/train4.mfc", mfc(30).substr(0, 100));
  write_file(dir / "feat/s/test1.mfc", mfc(30, NAN));
  std::filesystem::remove(dir / "feat/s/test2.mfc");
  check_faults("an4", dir.path(),
               {"an4.dic:2: \"C\" has no phones", "train.transcription:1: the dictionary lacks Z",
                "train.transcription:2: expected the words of (train2)",
                "train.fileids:3: \"train1\" is a duplicate of", "train.transcription:4: an empty transcript",
                "train.fileids:4: " + (dir / "feat/s/train4.mfc").string() + ": expected a number of values",
                "train.fileids:5: has no line in", "test.fileids:1: " + (dir / "feat/s/test1.mfc").string(),
                "test.fileids:2: " + (dir / "feat/s/test2.mfc").string() + ": no such file"});
}

TEST_CASE("the check of the spoken digits reports files with faults") {
  const TempDir dir;
  for (const char* name : {"0_ann_0.wav", "1_ann_1.wav", "2_bob_7.wav", "9_bob_12.wav"})
    write_ramps(dir / "recordings" / name, 8000);
  check_faults("fsdd", dir.path(), {});
  write_ramps(dir / "recordings/seven.wav", 8000);
  write_ramps(dir / "recordings/9_bob_12.wav", 16000);
  write_wav(dir / "recordings/1_ann_1.wav", std::vector<float>(4000, 0.0f), 8000);
  check_faults(
      "fsdd", dir.path(),
      {"seven.wav: expected a name like",
       "9_bob_12.wav: 16000 samples per second, the first recording has 8000", "1_ann_1.wav: is silent"});
  check_faults("fsdd", dir / "nowhere", {"no such folder"});
}

TEST_CASE("the check of TIMIT reports lines of .PHN files and recordings") {
  const TempDir dir;
  for (const char* name : {"TRAIN/DR1/FCJF0/SI1027", "TRAIN/DR1/FCJF0/SI1028", "TEST/DR1/FELC0/SI756"}) {
    write_ramps(dir / (std::string(name) + ".WAV"));
    write_file(dir / (std::string(name) + ".PHN"), std::string("0 100 h#\n100 200 ix\n200 8000 h#\n"));
  }
  check_faults("timit", dir.path(), {});
  write_file(dir / "TRAIN/DR1/FCJF0/SI1027.PHN",
             std::string("0 100 h#\n100 200 foo\n300 200 ix\nix\n350 99999 h#\n"));
  write_file(dir / "TRAIN/DR1/FCJF0/SI1028.PHN", std::string("100 200 ix\n0 300 h#\n"));
  std::filesystem::remove(dir / "TEST/DR1/FELC0/SI756.WAV");
  check_faults("timit", dir.path(),
               {"SI1027.PHN:2: \"foo\" is not a phone of TIMIT", "SI1027.PHN:3: ends before it starts",
                "SI1027.PHN:4: expected \"start end phone\"", "SI1027.PHN:5: ends at sample 99999 of 8000",
                "SI1028.PHN:2: begins before the phone above",
                "SI756.PHN: " + (dir / "TEST/DR1/FELC0/si756.wav").string() + ": no such file"});
}

TEST_CASE("the check of LibriSpeech reports lines of transcripts, and recordings without a transcript") {
  const TempDir dir;
  const auto flac = [&](const std::string& name) {
    // The file contains WAV data although the name of the file ends in .flac. Readers of audio files detect
    // the format from the contents and ignore the name.
    write_ramps(dir / ("dev-clean/84/121/84-121-" + name + ".flac"));
  };
  for (const char* name : {"0", "1"}) flac(name);
  write_file(dir / "dev-clean/84/121/84-121.trans.txt", std::string("84-121-0 GO ON\n84-121-1 MAYBE\n"));
  check_faults("librispeech", dir.path(), {});
  flac("7");
  write_file(dir / "dev-clean/84/121/84-121.trans.txt",
             std::string("84-121-0 GO ON\n84-121-0 GO\n\n84-121-1\n84-121-5 YES\n"));
  check_faults(
      "librispeech", dir.path(),
      {"trans.txt:2: \"84-121-0\" is a duplicate of", "trans.txt:3: expected \"id words",
       "trans.txt:4: an empty transcript", "trans.txt:5: ", "84-121-7.flac: no transcript names it"});
  std::filesystem::remove_all(dir / "dev-clean");
  check_faults("librispeech", dir.path(), {"contains no parts"});
}

TEST_CASE("the check of synthetic speech covers its three parts") {
  const TempDir dir;
  for (const std::string part : {"train", "valid", "test"}) {
    write_ramps(dir / part / "wav/a.wav");
    write_file(dir / part / "wav.scp", std::string("a wav/a.wav\n"));
    write_file(dir / part / "text", std::string("a x y\n"));
  }
  check_faults("synthetic-speech", dir.path(), {});
  write_file(dir / "valid/text", std::string("a\n"));
  std::filesystem::remove_all(dir / "test");
  check_faults("synthetic-speech", dir.path(), {"valid/text:1: an empty transcript", "test: no such folder"});
}

TEST_CASE("the check of a lexicon reports lines, and CMUdict has 39 phones") {
  const TempDir dir;
  const std::string good = ";;; comment\na AH0\na(2) EY1\nb B IY1 # letter\n";
  write_file(dir / "cmudict.dict", good);
  check_faults("cmudict", dir.path(), {});
  write_file(dir / "cmudict.dict", good + "c\nd D IY5\ne ix\n");
  check_faults(
      "cmudict", dir.path(),
      {"cmudict.dict:5: \"c\" has no phones", "cmudict.dict:6: \"IY5\" is not a phone of this lexicon",
       "cmudict.dict:7: \"ix\" is not a phone"});
  check_faults("lexicon", dir / "cmudict.dict", {"cmudict.dict:5: \"c\" has no phones"});
  write_file(dir / "empty", std::string(";;;\n"));
  check_faults("lexicon", dir / "empty", {"empty: contains no words"});
  check_faults("lexicon", dir / "none", {"none: no such file"});
  CHECK_THROWS_AS(find_speech_faults("timmit", dir.path()), ConfigError);
}

TEST_CASE("only stress is removed from the phones of a lexicon") {
  const TempDir dir;
  write_file(dir / "l", std::string("a AH0 EY1 IY2\nb @2 ma1 AH5 AH12 S1 T\n"));
  const Lexicon lexicon = Lexicon::read(dir / "l");
  CHECK(*lexicon.find("a") == Words{"AH", "EY", "IY"});
  CHECK(*lexicon.find("b") == Words{"@2", "ma1", "AH5", "AH12", "S1", "T"});
}

TEST_CASE("generated AN4, spoken digits and CMUdict have no faults") {
  const TempDir dir;
  write_stand_in_an4(dir / "an4", 4);
  write_stand_in_fsdd(dir / "fsdd", 12);
  write_stand_in_cmudict(dir / "cmudict");
  for (const std::string set : {"an4", "fsdd", "cmudict"}) check_faults(set, dir / set, {});
}

TEST_CASE("the real AN4, spoken digits and CMUdict have no faults") {
  const char* const directory = std::getenv("TAPEFORMER_DATA");
  for (const std::string set : {"an4", "fsdd", "cmudict"}) {
    if (!have_real(set)) {
      MESSAGE("skipped: no " << set << " in $TAPEFORMER_DATA");
      continue;
    }
    check_faults(set, std::filesystem::path(directory) / set, {});
  }
}
