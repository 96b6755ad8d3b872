#include "data/speech/prepare/prepare.h"

#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "core/base/errors.h"
#include "data/audio/audio.h"
#include "data/files/text_lines.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/prepare/pronunciation.h"
#include "data/speech/verify.h"
#include "tests/data/support.h"

using namespace tapeformer;
using namespace tapeformer::test;
namespace fs = std::filesystem;

namespace {

const Words kWords = {"zero", "one", "two", "three", "four"};

void write_tone(const fs::path& path, double pitch) {
  std::vector<float> samples(2400);
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(0.4 * std::sin(pitch * static_cast<double>(i)));
  fs::create_directories(path.parent_path());
  write_wav(path, samples, 8000);
}

// Writes audio/SPEAKER/NUMBER.wav for every speaker and word, and a table of transcripts in various
// spellings.
SpeechPreparationOptions write_recordings(const TempDir& dir, int speakers) {
  std::string table = "path\tsentence\n", lexicon;
  for (int s = 0; s < speakers; ++s)
    for (size_t w = 0; w < kWords.size(); ++w) {
      const std::string name = "s" + std::to_string(s) + "/" + std::to_string(w) + ".wav";
      write_tone(dir / "audio" / name, 0.1 + 0.05 * static_cast<double>(w));
      std::string text = kWords[w];
      if (s % 2) text[0] = static_cast<char>(text[0] - 'a' + 'A'), text += "!";
      table += name + "\t" + text + "\n";
    }
  for (const std::string& word : kWords) lexicon += word + " " + (word == "two" ? "T UW1" : "W AH1 N") + "\n";
  write_file(dir / "table.tsv", table);
  write_file(dir / "lexicon", lexicon);
  SpeechPreparationOptions options;
  options.audio_folder = dir / "audio";
  options.transcript_path = dir / "table.tsv";
  options.lexicon_paths = {dir / "lexicon"};
  options.output_folder = dir / "out";
  options.valid_share = options.test_share = 0.2;
  return options;
}

std::set<std::string> speakers_of(const fs::path& part) {
  std::set<std::string> speakers;
  for (const Utterance& utterance : read_kaldi_directory(part).utterances) speakers.insert(utterance.speaker);
  return speakers;
}

void append(const fs::path& path, const std::string& text) {
  write_file(path, read_file(path) + text);
}

}  // namespace

TEST_CASE("recordings and a table of transcripts become Kaldi directories for training") {
  const TempDir dir;
  const SpeechPreparationOptions options = write_recordings(dir, 12);
  const SpeechPreparationReport report = prepare_speech(options);
  CHECK(report.faults.empty());
  CHECK(report.unknown_words.empty());
  CHECK(report.utterance_count() == 60);
  // Each speaker has 5 of 60 utterances, so three speakers are needed for a fifth of the utterances.
  CHECK(report.valid_count == 15);
  CHECK(report.test_count == 15);
  CHECK(report.speaker_count == 12);
  CHECK(report.recording_counts_by_rate == std::map<int64_t, int64_t>{{8000, 60}});
  std::set<std::string> speakers;
  size_t count = 0;
  for (const char* part : {"train", "valid", "test"}) {
    const auto part_speakers = speakers_of(options.output_folder / part);
    count += part_speakers.size();
    speakers.insert(part_speakers.begin(), part_speakers.end());
  }
  CHECK(count == speakers.size());  // no speaker is in two parts
  SpeechCheckOptions checks;
  checks.lexicon = std::make_shared<const Lexicon>(Lexicon::read(options.output_folder / "lexicon.txt"));
  CHECK(find_speech_faults("kaldi", options.output_folder, checks).empty());
  for (const Utterance& utterance : read_kaldi_directory(options.output_folder / "train").utterances) {
    CHECK(utterance.words.size() == 1);
    CHECK(utterance.id.starts_with(utterance.speaker + "-"));
  }
  CHECK(!fs::exists(options.output_folder / "unknown-words.txt"));

  // The same seed gives the same split into train, valid and test, and another seed gives another split.
  const std::string valid = read_file(options.output_folder / "valid/wav.scp");
  prepare_speech(options);
  CHECK(read_file(options.output_folder / "valid/wav.scp") == valid);
  SpeechPreparationOptions other = options;
  other.seed = 5;
  prepare_speech(other);
  CHECK(read_file(options.output_folder / "valid/wav.scp") != valid);
  other.split_unit = "utterance";
  other.valid_share = 0;
  prepare_speech(other);
  CHECK(!fs::exists(options.output_folder / "valid"));
  CHECK(speakers_of(options.output_folder / "train").size() == 12);
}

TEST_CASE("unknown words are listed with their counts, and their utterances are left out") {
  const TempDir dir;
  const SpeechPreparationOptions options = write_recordings(dir, 3);
  for (const std::string name : {"5", "6", "7"}) write_tone(dir / ("audio/s0/" + name + ".wav"), 0.3);
  append(dir / "table.tsv", "s0/5.wav\tZork one, 5\ns0/6.wav\tzork\ns0/7\tfive-zork\n");
  const SpeechPreparationReport report = prepare_speech(options);
  CHECK(report.utterance_count() == 15);
  CHECK(report.unknown_word_utterance_count == 3);
  const std::string location = (dir / "table.tsv").string();
  CHECK(read_file(options.output_folder / "unknown-words.txt") ==
        "3 zork " + location + ":17\n1 5 " + location + ":17\n1 five " + location + ":19\n");
  CHECK(!fs::exists(options.output_folder / "proposed-lexicon.txt"));
  // A second lexicon adds the words that the first lexicon lacks.
  write_file(dir / "more", std::string("zork Z AO1 R K\nfive F AY1 V\nzero WRONG\n"));
  SpeechPreparationOptions extended = options;
  extended.lexicon_paths.push_back(dir / "more");
  CHECK(prepare_speech(extended).utterance_count() == 17);
  CHECK(contains(read_file(options.output_folder / "lexicon.txt"), "zork Z AO R K\n"));
  CHECK(contains(read_file(options.output_folder / "lexicon.txt"), "zero W AH N\n"));
}

TEST_CASE("recordings and transcripts without a match are reported") {
  const TempDir dir;
  SpeechPreparationOptions options = write_recordings(dir, 3);
  write_file(dir / "audio/s1/broken.wav", std::string("no sound"));
  write_tone(dir / "audio/s1/silent.wav", 0.3);
  write_tone(dir / "audio/s1/line\nbreak.wav", 0.3);
  fs::create_symlink("loop.wav", dir / "audio/s1/loop.wav");
  append(dir / "table.tsv",
         "s1/broken.wav\tone\ns9/0.wav\tone\n0.wav\tone\ns0/0.wav\ttwo\ns1/silent.wav\t…\n\ts1\n"
         "s1/line_break\tone\n");
  const SpeechPreparationReport report = prepare_speech(options);
  CHECK(report.utterance_count() == 15);
  CHECK(report.recording_count == 18);
  REQUIRE(report.faults.size() == 7);
  const std::vector<std::string> parts = {
      "table.tsv:22: the recording column is empty", "broken.wav: not a readable audio file",
      "several recordings match \"s9/0.wav\"",       "several recordings match \"0.wav\"",
      "\"s0/0.wav\" has a transcript already",       "the transcript has no words",
      "break.wav: the path contains a line break"};
  for (size_t i = 0; i < parts.size(); ++i) CHECK(contains(report.faults[i], parts[i]));

  const auto fails = [&](const SpeechPreparationOptions& wrong) {
    return message_of<std::exception>([&] { prepare_speech(wrong); });
  };
  SpeechPreparationOptions wrong = options;
  wrong.audio_folder = dir / "nowhere";
  CHECK(contains(fails(wrong), "no such folder of recordings"));
  write_file(dir / "mp3/a.mp3", std::string("x"));
  wrong.audio_folder = dir / "mp3";
  CHECK(contains(fails(wrong), "convert its 1 .mp3 files"));
  write_file(dir / "mp3/b.m4a", std::string("x"));
  fs::create_symlink("missing", dir / "mp3/c.wav");
  CHECK(contains(fails(wrong),
                 "contains no recordings (.wav, .flac, .ogg, .sph); 1 entries with such names are "
                 "links without a target or not files; convert its 2 .m4a .mp3 files"));
  wrong = options;
  wrong.valid_share = 0.5, wrong.test_share = 0.5;
  CHECK(contains(fails(wrong), "a sum below 1"));
  wrong = options;
  wrong.split_unit = "speaker", wrong.valid_share = 0.6, wrong.test_share = 0.3;
  CHECK(contains(fails(wrong), "the 3 speakers are too few: nothing is left for train"));
  write_file(dir / "audio/train/x.wav", std::string("x"));
  wrong = options;
  wrong.output_folder = dir / "audio";
  CHECK(contains(fails(wrong), "exists and is not a Kaldi data directory"));
  CHECK(fs::exists(dir / "audio/train/x.wav"));
  wrong.output_folder = dir / "mp3";
  write_file(dir / "mp3/lexicon.txt", std::string("a AH\n"));
  CHECK(contains(fails(wrong), "mp3/lexicon.txt: exists and does not belong to a prepared corpus"));
  CHECK(read_file(dir / "mp3/lexicon.txt") == "a AH\n");
  wrong = options;
  wrong.lexicon_paths = {dir / "lexicon", options.output_folder / "lexicon.txt"};
  CHECK(contains(fails(wrong), "out/lexicon.txt: is an input of the command, so it is not replaced"));
  write_file(dir / "table.tsv", std::string("path\tsentence\ns0/0.wav\tzork\n"));
  CHECK(contains(fails(options), "1 have words that the lexicon lacks, see"));
}

TEST_CASE("transcripts, lexicons and recordings are not replaced by the parts of the corpus") {
  const TempDir dir;
  SpeechPreparationOptions options = write_recordings(dir, 3);
  const fs::path out = options.output_folder, text = out / "train/text";
  std::string list;
  for (int s = 0; s < 3; ++s) list += "s" + std::to_string(s) + "/1 One!\n";
  const auto refuses = [&](const fs::path& transcripts, const std::string& named) {
    CAPTURE(transcripts.string());
    options.transcript_path = transcripts;
    CHECK(contains(message_of<ConfigError>([&] { prepare_speech(options); }),
                   named + ": is an input of the command"));
    CHECK(read_file(text) == list);
    CHECK(read_file(transcripts) == list);
    CHECK(!fs::exists(out / "lexicon.txt"));
  };
  write_file(text, list);
  fs::create_symlink(text, dir / "link");
  fs::create_hard_link(text, dir / "hard");
  for (const fs::path& same : {text, out / "../out/train/./text", dir / "link", dir / "hard"})
    refuses(same, text.string());
  // A file that would be replaced is a link to the transcripts.
  write_file(dir / "mine", list);
  for (const char* name : {"lexicon.txt", "unknown-words.txt", "valid/text"}) {
    fs::create_directories(out / "valid");
    fs::create_symlink(dir / "mine", out / name);
    options.transcript_path = dir / "mine";
    CHECK_THROWS_AS(prepare_speech(options), ConfigError);
    CHECK(read_file(dir / "mine") == list);
    fs::remove(out / name);
  }
  fs::remove_all(out);
  options.transcript_path = dir / "table.tsv";
  options.lexicon_paths = {dir / "lexicon"};
  prepare_speech(options);
  const std::string lexicon = read_file(out / "lexicon.txt");
  fs::create_symlink(out / "lexicon.txt", dir / "lexicon-link");
  options.lexicon_paths = {dir / "lexicon-link"};
  CHECK(contains(message_of<ConfigError>([&] { prepare_speech(options); }), "is an input of the command"));
  CHECK(read_file(out / "lexicon.txt") == lexicon);
}

TEST_CASE("a corpus can be prepared again in the folder of its recordings and transcripts") {
  const TempDir dir;
  SpeechPreparationOptions options = write_recordings(dir, 1);
  for (const std::string name : {"0", "1", "2", "3", "4"})
    write_file(dir / "audio/s0" / (name + ".txt"), kWords[std::stoul(name)] + "\n");
  options.transcript_path = options.output_folder = options.audio_folder;
  CHECK(prepare_speech(options).utterance_count() == 5);
  CHECK(prepare_speech(options).utterance_count() == 5);
  // A recording with the name of an output makes this output a transcript.
  write_tone(dir / "audio/lexicon.wav", 0.3);
  CHECK(contains(message_of<ConfigError>([&] { prepare_speech(options); }),
                 "audio/lexicon.txt: is an input of the command"));
}

TEST_CASE("phonemes of espeak-ng become phones of CMUdict") {
  CHECK(convert_espeak_to_arpabet({"s", "E", "v", "@", "n"}) == Words{"S", "EH", "V", "AH", "N"});
  CHECK(convert_espeak_to_arpabet({"k", "A@", "r", "I", "N"}) == Words{"K", "AA", "R", "IH", "NG"});
  CHECK(convert_espeak_to_arpabet({"tS", "aI3", "@L"}) == Words{"CH", "AY", "ER", "AH", "L"});
  CHECK_FALSE(convert_espeak_to_arpabet({"s", "y:"}).has_value());
  Lexicon other;
  other.add("a", {"AH", "q7"});
  CHECK_FALSE(has_only_arpabet_phones(other));
}

TEST_CASE("proposed pronunciations go to a separate file, are used only on request, and edits are kept") {
  if (std::system("command -v espeak-ng >/dev/null 2>&1")) {
    MESSAGE("skipped: espeak-ng is not installed");
    return;
  }
  const TempDir dir;
  SpeechPreparationOptions options = write_recordings(dir, 3);
  for (const std::string name : {"5", "6"}) write_tone(dir / ("audio/s0/" + name + ".wav"), 0.3);
  append(dir / "table.tsv", "s0/5.wav\tSeven\ns0/6.wav\t7 --seven\n");
  options.propose_pronunciations = true;
  const SpeechPreparationReport report = prepare_speech(options);
  CHECK(report.utterance_count() == 15);            // proposed pronunciations are not used
  CHECK(report.proposed_pronunciation_count == 1);  // no pronunciation is proposed for digits
  const fs::path proposals = options.output_folder / "proposed-lexicon.txt";
  CHECK(contains(read_file(proposals), "\nseven S EH V AH N\n"));
  write_file(proposals, std::string(";;; mine\nseven S EH V N\n"));
  prepare_speech(options);
  CHECK(read_file(proposals) == ";;; mine\nseven S EH V N\n");
  options.lexicon_paths.push_back(proposals);
  CHECK(prepare_speech(options).utterance_count() == 16);
  CHECK(contains(read_file(options.output_folder / "lexicon.txt"), "seven S EH V N\n"));
  options.espeak_program = "no-such-program";
  write_file(proposals, std::string(";;; mine\n"));
  CHECK(contains(message_of<DataError>([&] { prepare_speech(options); }), "no-such-program"));
}
