// Functions that check speech corpora. The functions read all files and report every fault with its file and
// line. All functions are thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/content_check.h"

namespace tapeformer {

// Returns the valid values of `layout` for find_speech_faults(). The values are the names of all speech data
// sets and lexicons in the catalogue, and "lexicon" for any lexicon file.
std::vector<std::string> list_speech_layouts();

// Properties of a checked corpus.
struct SpeechCheckSummary {
  int64_t sample_rate = 0;       // of the first recording; 0 if there are none
  bool has_other_rates = false;  // UtteranceChecker::have_rates_differed()
  std::string cuts;              // result of describe_cuts() for the utterances
};

// Returns all faults of the lists, labels and audio of a corpus. The features are computed with the code that
// training uses. For Kaldi, `path` is a data directory or a folder of data directories. If `summary` is not
// null, sets *summary. Throws ConfigError for an unknown layout.
Faults find_speech_faults(const std::string& layout, const std::filesystem::path& path,
                          const SpeechCheckOptions& checks = {}, SpeechCheckSummary* summary = nullptr);

}  // namespace tapeformer
