#include "data/speech/prepare/synthetic.h"

#include <doctest/doctest.h>

#include <cstdlib>
#include <set>

#include "core/base/errors.h"
#include "core/threads/threads.h"
#include "data/speech/kaldi_directory.h"
#include "tests/data/speech/kaldi_files.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;

TEST_CASE("marks of stress and joining are removed from phonemes of espeak-ng") {
  CHECK(parse_espeak_phonemes(" D_@2 s_'E_v_@_n\nk_w_'I_k_l_i_; _: (en)a#_l_'A@_dZ_(de)\n") ==
        Words{"D", "@2", "s", "E", "v", "@", "n", "k", "w", "I", "k", "l", "i", "l", "A@", "dZ"});
  CHECK(parse_espeak_phonemes("").empty());
}

TEST_CASE("generated sentences differ, and each range of sentences is a part of the same list") {
  const auto all = generate_sentences(3, 0, 500), part = generate_sentences(3, 200, 50);
  CHECK(std::set<Words>(all.begin(), all.end()).size() == 500);
  CHECK(std::vector<Words>(all.begin() + 200, all.begin() + 250) == part);
  CHECK(generate_sentences(4, 0, 5) != generate_sentences(3, 0, 5));
  CHECK_THROWS_AS(generate_sentences(3, 0, int64_t{1} << 40), ConfigError);
}

TEST_CASE("splits have different voices") {
  std::set<std::string> voices;
  size_t count = 0;
  for (const char* split : {"train", "valid", "test"})
    for (const std::string& voice : list_synthetic_voices(split)) {
      voices.insert(voice);
      ++count;
    }
  CHECK(voices.size() == count);
  CHECK_THROWS_AS(list_synthetic_voices("dev"), ConfigError);
}

TEST_CASE("the error of a missing program names its package") {
  const TempDir dir;
  SyntheticSpeechOptions options;
  options.espeak_program = "no-such-espeak";
  const std::string message = message_of<DataError>([&] { write_synthetic_speech(dir.path(), options); });
  CHECK(contains(message, "cannot run no-such-espeak"));
  CHECK(contains(message, "apt-get install espeak-ng"));
}

TEST_CASE("a failed run keeps existing data and removes unfinished data") {
  const TempDir dir;
  write_file(dir / "train/text", std::string("old\n"));
  write_file(dir / "train/wav/a.wav", std::string("whole"));
  write_file(dir / ".unfinished/train/wav/b.wav", std::string("of a run that was killed"));
  CHECK_THROWS_AS(write_synthetic_speech(dir.path(), {.espeak_program = "no-such-espeak"}), DataError);
  CHECK(read_file(dir / "train/text") == "old\n");
  CHECK(read_file(dir / "train/wav/a.wav") == "whole");
  CHECK(!std::filesystem::exists(dir / ".unfinished"));
}

TEST_CASE("a new run replaces all existing data") {
  if (std::system("command -v espeak-ng >/dev/null 2>&1")) {
    MESSAGE("skipped: espeak-ng is not installed");
    return;
  }
  const TempDir dir;
  write_synthetic_speech(dir.path(), {.train_count = 3, .valid_count = 1, .test_count = 1});
  write_synthetic_speech(dir.path(), {.train_count = 1, .valid_count = 0, .test_count = 1});
  const auto files = std::filesystem::directory_iterator(dir / "train/wav");
  CHECK(std::distance(begin(files), end(files)) == 1);
  CHECK(find_kaldi_faults(dir / "train").empty());
  CHECK(!std::filesystem::exists(dir / "valid"));
  CHECK(!std::filesystem::exists(dir / ".unfinished"));
}

TEST_CASE(
    "synthetic speech consists of three valid Kaldi directories, which do not depend on the number of "
    "threads") {
  if (std::system("command -v espeak-ng >/dev/null 2>&1")) {
    MESSAGE("skipped: espeak-ng is not installed");
    return;
  }
  const TempDir dir;
  const SyntheticSpeechOptions options{.train_count = 4, .valid_count = 1, .test_count = 2};
  const int before = get_thread_count();
  set_thread_count(1);
  write_synthetic_speech(dir / "one", options);
  set_thread_count(3);
  write_synthetic_speech(dir / "three", options);
  set_thread_count(before);
  for (const auto& [split, count] :
       {std::pair{"train", size_t{4}}, {"valid", size_t{1}}, {"test", size_t{2}}}) {
    CHECK(find_kaldi_faults(dir / "one" / split).empty());
    const Corpus corpus = read_kaldi_directory(dir / "one" / split);
    REQUIRE(corpus.utterances.size() == count);
    for (const Utterance& utterance : corpus.utterances) {
      // The transcripts contain phones instead of words. A sentence has at most 10 words, but more than 15
      // phones.
      CHECK(utterance.words.size() > 15);
      // espeak-ng 1.52 of Debian 13 speaks these two voices in several ways, also in repeated calls.
      const bool is_random = utterance.speaker.ends_with("-f2") || utterance.speaker.ends_with("-f5");
      const std::string other = read_file(dir / "three" / split / "wav" / utterance.path.filename());
      CHECK((is_random ? other.size() == read_file(utterance.path).size()
                       : other == read_file(utterance.path)));
    }
    for (const char* name : {"text", "words", "utt2spk"})
      CHECK(read_file(dir / "one" / split / name) == read_file(dir / "three" / split / name));
  }
}
