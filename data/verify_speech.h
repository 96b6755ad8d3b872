// What is wrong with a corpus of speech: every fault with the file and, in a list, the line. Reads
// everything; any thread.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "data/feature_store.h"

namespace tapeformer {

// The layouts that speech_problems knows: kaldi, synthetic-speech, an4, fsdd, timit, librispeech, cmudict (a
// folder with cmudict.dict) and lexicon (a file).
std::vector<std::string> speech_layouts();

// What training would do with a corpus. The defaults check the corpus alone.
struct SpeechChecks {
  FeatureOptions features;
  bool any_rate = true;                    // of the first recording; false: that of the features
  std::shared_ptr<const Lexicon> lexicon;  // words that it lacks are faults; none: words are not looked up
  bool words_are_phones = false;           // without a lexicon
  int64_t subsampling = 0;                 // above 0: labels must fit into the steps of the frames
  int64_t max_frames = 0;                  // of an utterance; 0: any
  bool allow_commands = false;             // of wav.scp: run, else faults
  std::vector<std::string> parts;          // folders of kaldi and librispeech; empty: all
};

// Returns every fault of a corpus: of its lists, labels and sound. Features are computed by the code that
// training uses. A Kaldi path is a data directory or a folder of such directories. Throws ConfigError for an
// unknown layout.
Faults speech_problems(const std::string& layout, const std::filesystem::path& path,
                       const SpeechChecks& checks = {});

// Whether the folder has lists of Kaldi (wav.scp, feats.scp or text).
bool is_kaldi_directory(const std::filesystem::path& folder);

// Checks utterances one after the other for faults that only their sound, features or labels show. All
// recordings must have one rate, all features one size.
class ContentCheck {
 public:
  explicit ContentCheck(SpeechChecks checks = {});
  // Returns the faults of the utterance.
  Faults operator()(const Utterance& utterance);

 private:
  int64_t check_sound(const Utterance& utterance);  // returns the frames
  int64_t check_recording(const Utterance& utterance);
  Words check_words(const Utterance& utterance) const;
  void check_lengths(const Words& phones, int64_t frames) const;

  SpeechChecks checks_;
  std::optional<Filterbank> filterbank_;
  int64_t dims_ = 0;
};

}  // namespace tapeformer
