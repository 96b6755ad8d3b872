#include "data/verify_speech.h"

#include <algorithm>
#include <set>

#include "core/errors.h"
#include "data/audio.h"
#include "data/catalogue.h"
#include "data/command.h"
#include "data/kaldi_directory.h"
#include "data/speech_sets.h"
#include "data/text_lines.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// Of CMUdict, without stress.
const std::set<std::string> kCmudictPhones = {"AA", "AE", "AH", "AO", "AW", "AY", "B",  "CH", "D",  "DH",
                                              "EH", "ER", "EY", "F",  "G",  "HH", "IH", "IY", "JH", "K",
                                              "L",  "M",  "N",  "NG", "OW", "OY", "P",  "R",  "S",  "SH",
                                              "T",  "TH", "UH", "UW", "V",  "W",  "Y",  "Z",  "ZH"};

// Runs f, which adds faults; what it throws is one too.
template <class F>
void collect(Faults& faults, F&& f) {
  try {
    f();
  } catch (const std::runtime_error& error) {
    faults.push_back(error.what());
  }
}

// A fault of an utterance, by the list or file that names it.
void add_fault(Faults& faults, const Utterance& utterance, const std::string& text) {
  faults.push_back(text.starts_with(utterance.place) ? text : utterance.place + ": " + text);
}

void check_utterances(const Corpus& corpus, ContentCheck& check_one, Faults& faults) {
  for (const Utterance& utterance : corpus.utterances) {
    if (!utterance.fault.empty()) add_fault(faults, utterance, utterance.fault);
    try {
      check_one(utterance);
    } catch (const std::runtime_error& error) {
      add_fault(faults, utterance, error.what());
    }
  }
}

// Phones come in order and end where the recording does; a tenth of a second more is let pass. What the
// labels and the recording lack by themselves is named elsewhere.
void check_timit_times(const Utterance& utterance, Faults& faults) {
  AudioInfo info;
  try {
    info = read_audio_info(utterance.path);
  } catch (const DataError&) {
    return;  // a fault of its own
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
    } catch (const DataError&) {  // not a number, which reading the labels has said
    }
}

// FLAC files that no transcript names.
void check_librispeech_files(const fs::path& folder, const Corpus& corpus, Faults& faults) {
  std::set<fs::path> named;
  for (const Utterance& utterance : corpus.utterances) named.insert(utterance.path);
  for (const auto& entry : fs::recursive_directory_iterator(folder))
    if (entry.path().extension() == ".flac" && !named.contains(entry.path()))
      faults.push_back(entry.path().string() + ": no transcript names it");
}

void verify_librispeech(const fs::path& folder, Faults& faults) {
  if (!fs::is_directory(folder)) throw DataError(folder.string() + ": no such folder");
  std::vector<std::string> parts;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.is_directory()) parts.push_back(entry.path().filename().string());
  std::sort(parts.begin(), parts.end());
  if (parts.empty()) throw DataError(folder.string() + ": holds no parts, such as dev-clean");
  ContentCheck check_one;
  for (const std::string& part : parts)
    collect(faults, [&] {
      const Corpus corpus = read_librispeech(folder, part, &faults);
      check_utterances(corpus, check_one, faults);
      check_librispeech_files(folder / part, corpus, faults);
    });
}

template <class Read>
void verify_splits(Faults& faults, Read&& read) {
  ContentCheck check_one;
  for (const std::string split : {"train", "test"})
    collect(faults, [&] { check_utterances(read(split), check_one, faults); });
}

void verify_synthetic(const fs::path& folder, Faults& faults) {
  for (const char* part : {"train", "valid", "test"}) {
    const Faults own = kaldi_problems(folder / part);
    faults.insert(faults.end(), own.begin(), own.end());
  }
}

void verify_lexicon(const fs::path& path, bool cmudict, Faults& faults) {
  const Lexicon lexicon = Lexicon::read(path, &faults, cmudict ? &kCmudictPhones : nullptr);
  if (lexicon.size() == 0) throw DataError(path.string() + ": holds no words");
}

}  // namespace

void ContentCheck::operator()(const Utterance& utterance) {
  if (!utterance.command.empty()) {
    const CommandOutput output(utterance.command);
    Utterance printed = utterance;
    printed.command.clear();
    printed.path = output.path();
    try {
      return (*this)(printed);
    } catch (const DataError& error) {
      throw DataError("what \"" + utterance.command + "\" printed: " + error.what());
    }
  }
  const std::string name = utterance.path.string();
  if (utterance.source == SpeechSource::audio) {
    const AudioInfo info = read_audio_info(utterance.path);
    const double seconds = static_cast<double>(info.samples) / static_cast<double>(info.rate);
    if (info.channels != 1)
      throw DataError(concat_text(name, ": has ", info.channels, " channels, expected 1"));
    if (info.samples > 0 && (utterance.begin >= seconds || utterance.end.value_or(0) > seconds + 0.1))
      throw DataError(concat_text(utterance.id, ": ends outside of ", name, " of ", seconds, " s"));
    if (!filterbank_) {
      options_.filterbank.rate = info.rate;
      filterbank_.emplace(options_.filterbank);
    }
    if (info.rate != options_.filterbank.rate)
      throw DataError(concat_text(name, ": ", info.rate, " samples per second, the first recording has ",
                                  options_.filterbank.rate));
  } else if (!filterbank_) {
    filterbank_.emplace(options_.filterbank);
  }
  const int64_t dims = compute_features(utterance, options_, *filterbank_).size(1);
  if (dims_ == 0) dims_ = dims;
  if (dims != dims_)
    throw DataError(concat_text(name, ": features of ", dims, " dims, the first utterance has ", dims_));
}

std::vector<std::string> speech_layouts() {
  return {"kaldi", "synthetic-speech", "an4", "fsdd", "timit", "librispeech", "cmudict", "lexicon"};
}

Faults speech_problems(const std::string& layout, const fs::path& path, bool allow_commands) {
  if (layout == "kaldi") return kaldi_problems(path, true, allow_commands);
  Faults faults;
  collect(faults, [&] {
    if (layout == "an4") {
      verify_splits(faults,
                    [&](const std::string& split) { return read_an4(an4_folder(path), split, &faults); });
    } else if (layout == "fsdd") {
      verify_splits(faults,
                    [&](const std::string& split) { return read_spoken_digits(path, split, &faults); });
    } else if (layout == "timit") {
      verify_splits(faults, [&](const std::string& split) {
        const Corpus corpus = read_timit(path, split, PhoneSet::timit48, &faults);
        for (const Utterance& utterance : corpus.utterances) check_timit_times(utterance, faults);
        return corpus;
      });
    } else if (layout == "librispeech") {
      verify_librispeech(path, faults);
    } else if (layout == "synthetic-speech") {
      verify_synthetic(path, faults);
    } else if (layout == "cmudict") {
      verify_lexicon(path / "cmudict.dict", true, faults);
    } else if (layout == "lexicon") {
      verify_lexicon(path, false, faults);
    } else {
      throw ConfigError(unknown_name_text(layout, "a layout", speech_layouts()));
    }
  });
  // Splits share files.
  Faults once;
  std::set<std::string> seen;
  for (std::string& fault : faults)
    if (seen.insert(fault).second) once.push_back(std::move(fault));
  return once;
}

}  // namespace tapeformer
