#include "data/speech/sets.h"

#include <algorithm>

#include "core/errors.h"
#include "data/directory.h"
#include "data/files/file.h"

namespace tapeformer {
namespace {

namespace fs = std::filesystem;

struct SpeechSet {
  const char *name, *title, *how_to_get;
  std::vector<const char*> files;  // required files and folders
};

const std::vector<SpeechSet>& speech_set_table() {
  static const std::vector<SpeechSet> sets = {
      {"an4",
       "CMU AN4, spelled words, features of 948 train and 130 test utterances",
       "unpack the features of CMU AN4 (etc/ and feat/) into such a folder, or name it as data.path",
       {"etc/an4.dic", "etc/an4_train.fileids", "etc/an4_train.transcription", "etc/an4_test.fileids",
        "etc/an4_test.transcription", "feat"}},
      {"fsdd",
       "Free Spoken Digits, recordings at 8 kHz, 2,700 train and 300 test",
       "clone https://github.com/Jakobovski/free-spoken-digit-dataset into such a folder, or name it as "
       "data.path",
       {"recordings"}},
      {"synthetic-speech",
       "sentences of a small grammar, spoken by espeak-ng",
       "make it with: tapeformer data prepare synthetic-speech",
       {"train", "valid", "test"}},
      {"cmudict",
       "CMUdict, the phones of English words",
       "download https://github.com/cmusphinx/cmudict into such a folder, or name a file as data.lexicon",
       {"cmudict.dict"}}};
  return sets;
}

std::string how_to_get_speech(const std::string& name) {
  for (const SpeechSet& set : speech_set_table())
    if (name == set.name) return set.how_to_get;
  return "name the folder as data.path";
}

// Returns the first candidate that is a folder.
std::optional<fs::path> find_speech_folder(const std::vector<fs::path>& candidates) {
  std::error_code ignored;
  for (const fs::path& folder : candidates)
    if (fs::is_directory(folder, ignored)) return folder;
  return std::nullopt;
}

}  // namespace

std::vector<std::string> speech_sets() {
  std::vector<std::string> names;
  for (const SpeechSet& set : speech_set_table()) names.emplace_back(set.name);
  return names;
}

std::vector<SpeechSetReport> list_speech_sets(const std::string& data_dir) {
  std::vector<SpeechSetReport> reports;
  for (const SpeechSet& set : speech_set_table()) {
    KnownSet known{};
    known.name = set.name;
    SpeechSetReport report{set.name,
                           set.title,
                           set.how_to_get,
                           find_speech_folder(candidate_folders(known, data_dir)),
                           static_cast<int64_t>(set.files.size()),
                           static_cast<int64_t>(set.files.size())};
    if (report.folder) {
      const fs::path folder = report.name == "an4" ? an4_folder(*report.folder) : *report.folder;
      std::error_code ignored;
      report.missing = std::count_if(set.files.begin(), set.files.end(),
                                     [&](const char* file) { return !fs::exists(folder / file, ignored); });
    }
    reports.push_back(std::move(report));
  }
  return reports;
}

fs::path speech_set_folder(const std::string& name, const std::string& data_dir) {
  const std::string how = how_to_get_speech(name);
  KnownSet set{};
  set.name = name;
  set.how_to_get = how;
  const auto candidates = candidate_folders(set, data_dir);
  if (auto folder = find_speech_folder(candidates)) return *std::move(folder);
  throw DataError(missing_set_text(set, candidates));
}

fs::path an4_folder(const fs::path& folder) {
  return !is_folder(folder / "etc") && is_folder(folder / "an4/etc") ? folder / "an4" : folder;
}

}  // namespace tapeformer
