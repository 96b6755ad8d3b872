#include "data/speech/verify.h"

#include <algorithm>
#include <set>

#include "core/base/errors.h"
#include "data/audio/audio.h"
#include "data/files/file.h"
#include "data/files/text_lines.h"
#include "data/sets/catalogue.h"
#include "data/speech/kaldi_directory.h"
#include "data/speech/read_corpus.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

// The value of the parameter `layout` of find_speech_faults() for a lexicon file.
constexpr std::string_view kLexiconLayout = "lexicon";

// The phones of CMUdict, without stress.
const std::set<std::string> kCmudictPhones = {"AA", "AE", "AH", "AO", "AW", "AY", "B",  "CH", "D",  "DH",
                                              "EH", "ER", "EY", "F",  "G",  "HH", "IH", "IY", "JH", "K",
                                              "L",  "M",  "N",  "NG", "OW", "OY", "P",  "R",  "S",  "SH",
                                              "T",  "TH", "UH", "UW", "V",  "W",  "Y",  "Z",  "ZH"};

void add_fault(Faults& faults, const Utterance& utterance, const std::string& text) {
  faults.push_back(text.starts_with(utterance.location) ? text : utterance.location + ": " + text);
}

void check_utterances(const Corpus& corpus, UtteranceChecker& content_check, Faults& faults) {
  for (const Utterance& utterance : corpus.utterances) {
    if (!utterance.fault.empty()) add_fault(faults, utterance, utterance.fault);
    for (const std::string& fault : content_check(utterance)) add_fault(faults, utterance, fault);
  }
}

// Appends a fault for each phone that begins before the previous phone or ends more than 0.1 s after the end
// of the recording.
void check_timit_times(const Utterance& utterance, Faults& faults) {
  AudioInfo info;
  try {
    info = read_audio_info(utterance.path);
  } catch (const DataError&) {
    return;  // reported by another check
  }
  double before = 0;
  for (const TextLine& line : read_lines(utterance.location)) try {
      const Words words = split_words(line.text);
      if (words.size() != 3) continue;
      const double begin = parse_number(words[0], line), end = parse_number(words[1], line);
      if (begin < before) faults.push_back(line.location() + ": begins before the phone above");
      if (end > static_cast<double>(info.sample_count + info.rate / 10))
        faults.push_back(concat_text(line.location(), ": ends at sample ", end, " of ", info.sample_count));
      before = begin;
    } catch (const DataError&) {  // reported by the reader of labels
    }
}

void check_librispeech_files(const fs::path& folder, const Corpus& corpus, Faults& faults) {
  std::set<fs::path> named;
  for (const Utterance& utterance : corpus.utterances) named.insert(utterance.path);
  for (const auto& entry : list_folder_tree(folder))
    if (entry.path().extension() == ".flac" && !named.contains(entry.path()))
      faults.push_back(entry.path().string() + ": no transcript names it");
}

template <class HoldsPart>
std::vector<fs::path> part_folders(const fs::path& folder, const SpeechCheckOptions& checks,
                                   HoldsPart&& holds_part) {
  if (!is_folder(folder)) throw DataError(folder.string() + ": no such folder");
  std::vector<fs::path> parts;
  for (const std::string& part : checks.parts) parts.push_back(folder / part);
  if (!parts.empty()) return parts;
  for (const auto& entry : list_folder(folder))
    if (is_folder(entry.path()) && holds_part(entry.path())) parts.push_back(entry.path());
  return parts;
}

void verify_librispeech(const fs::path& folder, const SpeechCheckOptions& checks,
                        UtteranceChecker& content_check, Faults& faults) {
  const auto parts = part_folders(folder, checks, [](const fs::path&) { return true; });
  if (parts.empty()) throw DataError(folder.string() + ": contains no parts, such as dev-clean");
  for (const fs::path& part : parts)
    run_and_collect_fault(&faults, [&] {
      const Corpus corpus = read_librispeech(part.parent_path(), part.filename().string(), &faults);
      check_utterances(corpus, content_check, faults);
      check_librispeech_files(part, corpus, faults);
    });
}

// Verifies the parts "train" and "test" of a corpus. This function is not for Kaldi and LibriSpeech corpora,
// whose parts are folders with arbitrary names.
void verify_splits(const CatalogueEntry& set, const fs::path& folder, UtteranceChecker& content_check,
                   Faults& faults) {
  for (const std::string part : {"train", "test"})
    run_and_collect_fault(&faults, [&] {
      const Corpus corpus = read_corpus(set, folder, part, {}, &faults);
      if (set.format == CorpusFormat::timit)
        for (const Utterance& utterance : corpus.utterances) check_timit_times(utterance, faults);
      check_utterances(corpus, content_check, faults);
    });
}

void verify_kaldi(const fs::path& folder, const SpeechCheckOptions& checks, UtteranceChecker& content_check,
                  Faults& faults) {
  std::vector<fs::path> parts = {folder};
  if (!is_kaldi_directory(folder)) parts = part_folders(folder, checks, is_kaldi_directory);
  if (parts.empty())
    throw DataError(
        folder.string() +
        ": expected a data directory of Kaldi (wav.scp or feats.scp, and text) or a folder of such "
        "directories");
  for (const fs::path& part : parts) {
    const Faults own = find_kaldi_faults(part, content_check, checks.allow_commands);
    faults.insert(faults.end(), own.begin(), own.end());
  }
}

void verify_lexicon(const fs::path& path, bool cmudict, Faults& faults) {
  const Lexicon lexicon = Lexicon::read(path, &faults, cmudict ? &kCmudictPhones : nullptr);
  if (lexicon.size() == 0) throw DataError(path.string() + ": contains no words");
}

void verify_set_contents(const CatalogueEntry& set, const fs::path& path, SpeechCheckOptions checks,
                         UtteranceChecker& content_check, Faults& faults) {
  switch (set.format) {
    case CorpusFormat::kaldi:
      if (checks.parts.empty())
        for (const CatalogueFile& part : set.files) checks.parts.emplace_back(part.name);
      return verify_kaldi(path, checks, content_check, faults);
    case CorpusFormat::librispeech:
      return verify_librispeech(path, checks, content_check, faults);
    case CorpusFormat::cmudict:
      return verify_lexicon(path / set.files.front().name, true, faults);
    default:
      return verify_splits(set, path, content_check, faults);
  }
}

}  // namespace

std::vector<std::string> list_speech_layouts() {
  std::vector<std::string> layouts = list_dataset_names([](const CatalogueEntry& set) {
    return set.type == DatasetType::speech || set.type == DatasetType::lexicon;
  });
  layouts.emplace_back(kLexiconLayout);
  return layouts;
}

Faults find_speech_faults(const std::string& layout, const fs::path& path, const SpeechCheckOptions& checks,
                          SpeechCheckSummary* summary) {
  const auto layouts = list_speech_layouts();
  if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end())
    throw ConfigError(describe_unknown_name(layout, "a layout", layouts));
  Faults faults;
  UtteranceChecker content_check(checks);
  run_and_collect_fault(&faults, [&] {
    if (layout == kLexiconLayout)
      verify_lexicon(path, false, faults);
    else
      verify_set_contents(require_catalogue_entry(layout), path, checks, content_check, faults);
  });
  if (summary)
    *summary = {content_check.sample_rate(), content_check.have_rates_differed(),
                content_check.describe_cuts()};
  // The parts of a corpus can share files, so the same fault can occur several times. Duplicate faults are
  // removed.
  Faults once;
  std::set<std::string> seen;
  for (std::string& fault : faults)
    if (seen.insert(fault).second) once.push_back(std::move(fault));
  return once;
}

}  // namespace tapeformer
