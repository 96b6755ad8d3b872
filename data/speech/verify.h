// Checks of corpora of speech, which read all files and report every fault with its file and line. All
// functions are thread-safe.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/feature_store.h"

namespace tapeformer {

// Returns the layouts that speech_problems supports: the data sets of speech, the lexica, and "lexicon",
// which is the file of a lexicon.
std::vector<std::string> speech_layouts();

// Options of the checks. The defaults check the corpus alone; other values also check how training uses it.
struct SpeechChecks {
  FeatureOptions features;
  bool any_rate = true;  // true: the first recording sets the rate; false: `features` sets it
  std::shared_ptr<const Lexicon> lexicon;  // unknown words are faults; null: words are not checked
  bool words_are_phones = false;           // words are labels if there is no lexicon
  int64_t subsampling = 0;                 // frames per step, to check that CTC can align labels; 0: no check
  int64_t max_frames = 0;                  // maximum frames of an utterance; 0: no limit
  bool allow_commands = false;             // run commands of wav.scp; false: commands are faults
  std::vector<std::string> parts;          // folders to check, for kaldi and librispeech; empty: all
};

// Returns all faults of the lists, labels and audio of a corpus. Computes features with the same code as
// training. For Kaldi, `path` is a data directory or a folder of data directories. Throws ConfigError for an
// unknown layout.
Faults speech_problems(const std::string& layout, const std::filesystem::path& path,
                       const SpeechChecks& checks = {});

// Returns whether the folder contains a list of Kaldi (wav.scp, feats.scp or text).
bool is_kaldi_directory(const std::filesystem::path& folder);

// A check of the audio, features and labels of utterances. All recordings must have the same rate, and all
// features the same size.
class ContentCheck {
 public:
  explicit ContentCheck(SpeechChecks checks = {});
  // Returns the faults of the utterance.
  Faults operator()(const Utterance& utterance);

 private:
  // Check the recording or features, and return the number of frames.
  int64_t check_sound(const Utterance& utterance);
  int64_t check_recording(const Utterance& utterance);
  Words check_words(const Utterance& utterance) const;
  void check_lengths(const Words& phones, int64_t frames) const;

  SpeechChecks checks_;
  std::optional<Filterbank> filterbank_;
  int64_t dims_ = 0;
};

}  // namespace tapeformer
