#include "data/speech/prepare/synthetic.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>

#include "core/base/errors.h"
#include "core/random/rng.h"
#include "core/system/files.h"
#include "core/threads/threads.h"
#include "data/audio/audio.h"
#include "data/files/command.h"
#include "data/files/text_lines.h"
#include "data/speech/kaldi_directory.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Suffix of the WAV file that espeak-ng writes. The function speak() reads and removes this file, and writes
// the recording with noise to a separate file.
constexpr char kSpokenSuffix[] = ".espeak.wav";
// Name of the folder that contains the data until all splits are complete.
constexpr char kUnfinished[] = ".unfinished";

// The grammar of the sentences. A sentence consists of one entry of each list, in the order of the lists.
const std::vector<Words> kGrammar = {
    {"the", "a", "every", "that", "this", "some", "no", "our"},
    {"old", "young", "quiet", "clever", "hungry", "busy", "gentle", "strange", "happy", "careful"},
    {"teacher", "dog", "sailor", "farmer", "child", "bird", "judge", "painter", "nurse", "king"},
    {"finds", "watches", "carries", "opens", "draws", "forgets", "mentions", "washes", "chooses", "pushes"},
    {"the", "one", "my", "your", "another", "their", "each", "her"},
    {"yellow", "heavy", "broken", "purple", "wooden", "shiny", "frozen", "tiny", "thick", "blue"},
    {"book", "garden", "window", "bridge", "orange", "mirror", "church", "treasure", "feather", "bowl"},
    {"today", "again", "slowly", "at noon", "in the dark", "for us", "with joy", "by chance", "now",
     "over there"}};

std::string espeak_output(const Words& command) try {
  return CommandOutput(command).text();
} catch (const DataError& error) {
  throw DataError(std::string(error.what()) + "; on Debian: apt-get install espeak-ng");
}

void add_noise(std::vector<float>& samples, double decibels, const RandomStream& stream) {
  double energy = 0;
  for (const float sample : samples) energy += static_cast<double>(sample) * sample;
  const double scale =
      std::sqrt(energy / static_cast<double>(samples.size())) * std::pow(10.0, -decibels / 20);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] += static_cast<float>(scale * stream.normal(i));
}

// Makes an utterance: espeak-ng speaks the words, noise is added, and the recording is written to
// folder/wav/ID.wav.
Utterance speak(const fs::path& folder, const std::string& split, int64_t number, const Words& words,
                const SyntheticSpeechOptions& options) {
  const RandomStream stream(options.seed, "synthetic " + split, static_cast<uint64_t>(number));
  const Words voices = list_synthetic_voices(split);
  const std::string voice = voices[stream.uniform_below(0, voices.size())];
  std::string digits = std::to_string(number);
  digits.insert(0, 6 - std::min<size_t>(6, digits.size()), '0');
  Utterance utterance;
  utterance.speaker = split + "-" + voice.substr(voice.find('+') + 1);
  utterance.id = utterance.speaker + "-" + digits;
  utterance.words = words;
  utterance.path = fs::path("wav") / (utterance.id + ".wav");
  const fs::path spoken = folder / "wav" / (utterance.id + kSpokenSuffix);
  utterance.phones = parse_espeak_phonemes(espeak_output(
      {options.espeak_program, "-v", voice, "-s", std::to_string(120 + stream.uniform_below(1, 81)), "-p",
       std::to_string(25 + stream.uniform_below(2, 51)), "-x", "--sep=_", "-w", spoken.string(),
       join_words(words)}));
  Audio audio = read_audio(spoken, {.rate = options.rate, .resample = true});
  fs::remove(spoken);
  const double span = options.max_snr_db - options.min_snr_db;
  add_noise(audio.samples, options.min_snr_db + span * stream.uniform(3),
            RandomStream(options.seed, "synthetic noise " + split, static_cast<uint64_t>(number)));
  write_wav(folder / utterance.path, audio.samples, audio.rate);
  return utterance;
}

void make_split(const fs::path& folder, const std::string& split, const std::vector<Words>& sentences,
                const SyntheticSpeechOptions& options) {
  fs::create_directories(folder / "wav");
  Corpus corpus{split, std::vector<Utterance>(sentences.size())};
  parallel_for(static_cast<int64_t>(sentences.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      corpus.utterances[static_cast<size_t>(i)] =
          speak(folder, split, i, sentences[static_cast<size_t>(i)], options);
  });
  write_kaldi_directory(folder, corpus);
  std::set<std::string> lines;
  for (const Utterance& utterance : corpus.utterances)
    lines.insert(utterance.id + " " + join_words(utterance.words) + "\n");
  std::string words;
  for (const std::string& line : lines) words += line;
  replace_file((folder / "words").string(), words);
}

}  // namespace

Words list_synthetic_voices(const std::string& split) {
  if (split == "train")
    return {"en-us+m1", "en-us+m2", "en-us+m3", "en-us+m7", "en-us+f1", "en-us+f2", "en-us+f3"};
  if (split == "valid") return {"en-us+m4", "en-us+f4"};
  if (split == "test") return {"en-us+m8", "en-us+f5"};
  throw ConfigError("synthetic-speech has the splits train, valid and test, not \"" + split + "\"");
}

std::vector<Words> generate_sentences(uint64_t seed, int64_t first, int64_t count) {
  int64_t possible = 1;
  for (const Words& choices : kGrammar) possible *= static_cast<int64_t>(choices.size());
  if (first < 0 || count < 0 || first + count > possible / 100)
    throw ConfigError(
        concat_text("synthetic-speech: expected at most ", possible / 100, " sentences in all"));
  std::set<Words> seen;
  std::vector<Words> result;
  for (uint64_t draw = 0; static_cast<int64_t>(seen.size()) < first + count; ++draw) {
    const RandomStream stream(seed, "synthetic sentences", draw);
    Words sentence;
    for (size_t i = 0; i < kGrammar.size(); ++i)
      for (const std::string& word : split_words(kGrammar[i][stream.uniform_below(i, kGrammar[i].size())]))
        sentence.push_back(word);
    if (seen.insert(sentence).second && static_cast<int64_t>(seen.size()) > first) result.push_back(sentence);
  }
  return result;
}

Words parse_espeak_phonemes(const std::string& text) {
  std::string spaced = text;
  std::replace(spaced.begin(), spaced.end(), '_', ' ');
  std::erase_if(spaced, [](char c) { return std::strchr("',;%=|", c) && c != '\0'; });
  Words phones = split_words(spaced);
  // espeak-ng prints ":" for a pause, and the language in parentheses for a change of language, as in "(fr)".
  std::erase_if(phones, [](const std::string& phone) { return phone == ":" || phone[0] == '('; });
  return phones;
}

void write_synthetic_speech(const fs::path& folder, const SyntheticSpeechOptions& options) {
  if (options.train_count < 1 || options.valid_count < 0 || options.test_count < 0 || options.rate < 1000 ||
      options.min_snr_db > options.max_snr_db)
    throw ConfigError(
        "synthetic-speech: expected at least 1 sentence for training, none negative, a rate of at "
        "least 1000, and noise from loud to quiet");
  // Removes the data of an interrupted run.
  const fs::path unfinished = folder / kUnfinished;
  fs::remove_all(unfinished);
  std::vector<std::string> made;
  try {
    int64_t first = 0;
    for (const auto& [split, count] : {std::pair{"train", options.train_count},
                                       {"valid", options.valid_count},
                                       {"test", options.test_count}}) {
      if (count > 0) {
        make_split(unfinished / split, split, generate_sentences(options.seed, first, count), options);
        made.push_back(split);
      }
      first += count;
    }
  } catch (...) {
    fs::remove_all(unfinished);
    throw;
  }
  for (const char* split : {"train", "valid", "test"}) fs::remove_all(folder / split);
  for (const std::string& split : made) rename_path(unfinished / split, folder / split);
  fs::remove(unfinished);
}

}  // namespace tapeformer
