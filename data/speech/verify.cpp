#include "data/speech/verify.h"

#include <algorithm>
#include <set>

#include "core/errors.h"
#include "core/frames.h"
#include "data/audio/audio.h"
#include "data/catalogue.h"
#include "data/files/command.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/read_corpus.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLexiconLayout = "lexicon";  // a file

// The phones of CMUdict, without stress.
const std::set<std::string> kCmudictPhones = {"AA", "AE", "AH", "AO", "AW", "AY", "B",  "CH", "D",  "DH",
                                              "EH", "ER", "EY", "F",  "G",  "HH", "IH", "IY", "JH", "K",
                                              "L",  "M",  "N",  "NG", "OW", "OY", "P",  "R",  "S",  "SH",
                                              "T",  "TH", "UH", "UW", "V",  "W",  "Y",  "Z",  "ZH"};

// Runs f, which appends faults, and appends its exception as a fault.
template <class F>
void collect(Faults& faults, F&& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    faults.push_back(error.what());
  }
}

// Appends a fault, with the place of the utterance.
void add_fault(Faults& faults, const Utterance& utterance, const std::string& text) {
  faults.push_back(text.starts_with(utterance.place) ? text : utterance.place + ": " + text);
}

void check_utterances(const Corpus& corpus, ContentCheck& check_one, Faults& faults) {
  for (const Utterance& utterance : corpus.utterances) {
    if (!utterance.fault.empty()) add_fault(faults, utterance, utterance.fault);
    for (const std::string& fault : check_one(utterance)) add_fault(faults, utterance, fault);
  }
}

// Checks that phones are in order and end within the recording, with a tolerance of 0.1 s. Other checks
// report unreadable recordings and invalid lines.
void check_timit_times(const Utterance& utterance, Faults& faults) {
  AudioInfo info;
  try {
    info = read_audio_info(utterance.path);
  } catch (const DataError&) {
    return;  // reported by another check
  }
  double before = 0;
  for (const TextLine& line : read_lines(utterance.place)) try {
      const Words words = split_words(line.text);
      if (words.size() != 3) continue;
      const double begin = parse_number(words[0], line), end = parse_number(words[1], line);
      if (begin < before) faults.push_back(line.place() + ": begins before the phone above");
      if (end > static_cast<double>(info.samples + info.rate / 10))
        faults.push_back(concat_text(line.place(), ": ends at sample ", end, " of ", info.samples));
      before = begin;
    } catch (const DataError&) {  // reported by the reader of labels
    }
}

// Reports FLAC files that no transcript names.
void check_librispeech_files(const fs::path& folder, const Corpus& corpus, Faults& faults) {
  std::set<fs::path> named;
  for (const Utterance& utterance : corpus.utterances) named.insert(utterance.path);
  for (const auto& entry : entries_below(folder))
    if (entry.path().extension() == ".flac" && !named.contains(entry.path()))
      faults.push_back(entry.path().string() + ": no transcript names it");
}

// Returns the folders in checks.parts. If there are none, returns all folders for which `holds_part` is true.
template <class HoldsPart>
std::vector<fs::path> part_folders(const fs::path& folder, const SpeechChecks& checks,
                                   HoldsPart&& holds_part) {
  if (!is_folder(folder)) throw DataError(folder.string() + ": no such folder");
  std::vector<fs::path> parts;
  for (const std::string& part : checks.parts) parts.push_back(folder / part);
  if (!parts.empty()) return parts;
  for (const auto& entry : folder_entries(folder))
    if (is_folder(entry.path()) && holds_part(entry.path())) parts.push_back(entry.path());
  return parts;
}

void verify_librispeech(const fs::path& folder, const SpeechChecks& checks, Faults& faults) {
  const auto parts = part_folders(folder, checks, [](const fs::path&) { return true; });
  if (parts.empty()) throw DataError(folder.string() + ": contains no parts, such as dev-clean");
  ContentCheck check_one(checks);
  for (const fs::path& part : parts)
    collect(faults, [&] {
      const Corpus corpus = read_librispeech(part.parent_path(), part.filename().string(), &faults);
      check_utterances(corpus, check_one, faults);
      check_librispeech_files(part, corpus, faults);
    });
}

// Verifies the parts "train" and "test" of a corpus without part folders.
void verify_splits(const KnownSet& set, const fs::path& folder, const SpeechChecks& checks, Faults& faults) {
  ContentCheck check_one(checks);
  for (const std::string part : {"train", "test"})
    collect(faults, [&] {
      const Corpus corpus = read_corpus(set, folder, part, {}, &faults);
      if (set.format == DatasetFormat::timit)
        for (const Utterance& utterance : corpus.utterances) check_timit_times(utterance, faults);
      check_utterances(corpus, check_one, faults);
    });
}

void verify_kaldi(const fs::path& folder, const SpeechChecks& checks, Faults& faults) {
  std::vector<fs::path> parts = {folder};
  if (!is_kaldi_directory(folder)) parts = part_folders(folder, checks, is_kaldi_directory);
  if (parts.empty())
    throw DataError(
        folder.string() +
        ": expected a data directory of Kaldi (wav.scp or feats.scp, and text) or a folder of such "
        "directories");
  ContentCheck check_one(checks);
  for (const fs::path& part : parts) {
    const Faults own = kaldi_problems(part, check_one, checks.allow_commands);
    faults.insert(faults.end(), own.begin(), own.end());
  }
}

void verify_lexicon(const fs::path& path, bool cmudict, Faults& faults) {
  const Lexicon lexicon = Lexicon::read(path, &faults, cmudict ? &kCmudictPhones : nullptr);
  if (lexicon.size() == 0) throw DataError(path.string() + ": contains no words");
}

void verify_set_contents(const KnownSet& set, const fs::path& path, SpeechChecks checks, Faults& faults) {
  switch (set.format) {
    case DatasetFormat::kaldi:
      if (checks.parts.empty())
        for (const KnownFile& part : set.files) checks.parts.emplace_back(part.name);
      return verify_kaldi(path, checks, faults);
    case DatasetFormat::librispeech:
      return verify_librispeech(path, checks, faults);
    case DatasetFormat::cmudict:
      return verify_lexicon(path / set.files.front().name, true, faults);
    default:
      return verify_splits(set, path, checks, faults);
  }
}

}  // namespace

bool is_kaldi_directory(const fs::path& folder) {
  std::error_code ignored;
  for (const char* list : {"wav.scp", "feats.scp", "text"})
    if (fs::exists(folder / list, ignored)) return true;
  return false;
}

ContentCheck::ContentCheck(SpeechChecks checks) : checks_(std::move(checks)) {
  if (!checks_.any_rate) filterbank_.emplace(checks_.features.filterbank);
}

Faults ContentCheck::operator()(const Utterance& utterance) {
  Faults faults;
  Words phones;
  collect(faults, [&] { phones = check_words(utterance); });
  collect(faults, [&] { check_lengths(phones, check_sound(utterance)); });
  return faults;
}

Words ContentCheck::check_words(const Utterance& utterance) const {
  if (!utterance.phones.empty()) return utterance.phones;
  if (!checks_.lexicon) return checks_.words_are_phones ? utterance.words : Words();
  std::set<std::string> unknown;
  Words phones = checks_.lexicon->pronounce(utterance.words, unknown);
  std::string text;
  for (const std::string& word : unknown) text += " \"" + word + "\"";
  if (!text.empty()) throw DataError("the lexicon lacks" + text);
  return phones;
}

void ContentCheck::check_lengths(const Words& phones, int64_t frames) const {
  if (checks_.max_frames > 0 && frames > checks_.max_frames)
    throw DataError(
        concat_text(frames, " frames are more than the maximum of the model, ", checks_.max_frames));
  if (checks_.subsampling == 0) return;
  auto needed = static_cast<int64_t>(phones.size());
  for (size_t i = 1; i < phones.size(); ++i) needed += phones[i] == phones[i - 1];
  if (const int64_t steps = subsampled_steps(frames, checks_.subsampling); steps < needed)
    throw DataError(concat_text(frames, " frames make ", steps, " steps of the model, fewer than the ",
                                needed, " that CTC needs for its ", phones.size(), " labels"));
}

int64_t ContentCheck::check_sound(const Utterance& utterance) {
  if (utterance.command.empty()) return check_recording(utterance);
  const CommandOutput output(utterance.command);
  Utterance printed = utterance;
  printed.command.clear();
  printed.path = output.path();
  try {
    return check_recording(printed);
  } catch (const DataError& error) {
    throw DataError("the output of \"" + utterance.command + "\": " + error.what());
  }
}

int64_t ContentCheck::check_recording(const Utterance& utterance) {
  const std::string name = utterance.path.string();
  FilterbankOptions& bank = checks_.features.filterbank;
  if (utterance.source == SpeechSource::audio) {
    // If the header does not contain the length, the samples are counted as far as they are needed.
    const double max_seconds = utterance.end          ? *utterance.end + 1
                               : utterance.begin == 0 ? checks_.features.max_seconds
                                                      : 0;
    const AudioInfo info = read_audio_info(utterance.path, max_seconds);
    const double seconds = static_cast<double>(info.samples) / static_cast<double>(info.rate);
    if (info.samples > 0 && (utterance.begin >= seconds || utterance.end.value_or(0) > seconds + 0.1))
      throw DataError(concat_text(utterance.id, ": ends outside of ", name, " of ", seconds, " s"));
    if (!filterbank_) {
      bank.rate = info.rate;
      filterbank_.emplace(bank);
    }
    if (checks_.any_rate && info.rate != bank.rate)
      throw DataError(
          concat_text(name, ": ", info.rate, " samples per second, the first recording has ", bank.rate));
  } else if (!filterbank_) {
    filterbank_.emplace(bank);
  }
  const Tensor features = compute_features(utterance, checks_.features, *filterbank_);
  const int64_t dims = features.size(1);
  if (dims_ == 0) dims_ = dims;
  if (dims != dims_)
    throw DataError(concat_text(name, ": features of ", dims, " dims, the first utterance has ", dims_));
  return features.size(0);
}

std::vector<std::string> speech_layouts() {
  std::vector<std::string> layouts = set_names([](const KnownSet& set) {
    return set.type == DatasetType::speech || set.type == DatasetType::lexicon;
  });
  layouts.emplace_back(kLexiconLayout);
  return layouts;
}

Faults speech_problems(const std::string& layout, const fs::path& path, const SpeechChecks& checks) {
  const auto layouts = speech_layouts();
  if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
    throw ConfigError(unknown_name_text(layout, "a layout", layouts));
  Faults faults;
  collect(faults, [&] {
    if (layout == kLexiconLayout)
      verify_lexicon(path, false, faults);
    else
      verify_set_contents(known_set(layout), path, checks, faults);
  });
  // The parts of a corpus share files.
  Faults once;
  std::set<std::string> seen;
  for (std::string& fault : faults)
    if (seen.insert(fault).second) once.push_back(std::move(fault));
  return once;
}

}  // namespace tapeformer
