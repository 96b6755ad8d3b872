// What is wrong with a corpus of speech: every fault with the file and, in a list, the line. Reads
// everything; any thread.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/feature_store.h"

namespace tapeformer {

// The layouts that speech_problems knows: kaldi, synthetic-speech, an4, fsdd, timit, librispeech, cmudict (a
// folder with cmudict.dict) and lexicon (a file).
std::vector<std::string> speech_layouts();

// Every fault of a corpus, its lists, labels and sound; none: good. Features are computed as in training.
// Throws ConfigError for a layout that is none.
// Commands of a wav.scp are faults, or run.
std::vector<std::string> speech_problems(const std::string& layout, const std::filesystem::path& path,
                                         bool allow_commands = false);

// Looks at utterances one after the other for what only their sound or features show; all must be alike.
class ContentCheck {
 public:
  // Throws DataError.
  void operator()(const Utterance& utterance);

 private:
  FeatureOptions options_;
  std::optional<Filterbank> filterbank_;
  int64_t dims_ = 0;
};

}  // namespace tapeformer
