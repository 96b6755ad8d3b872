// Checks of single utterances. The checks read audio and compute features with the same code as training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/feature_store.h"

namespace tapeformer {

// Options of the checks. The defaults check the corpus alone; other values also check that training can use
// the corpus.
struct SpeechCheckOptions {
  FeatureOptions features;
  bool allow_any_rate = true;  // true: the first recording sets the rate; false: `features` sets it
  std::shared_ptr<const Lexicon> lexicon;  // words that the lexicon lacks are faults; null: no check
  bool words_are_phones = false;           // words are labels if there is no lexicon
  // Frames per step of the encoder, to check that CTC can align the labels; 0: no check.
  int64_t subsampling = 0;
  int64_t max_frames = 0;          // maximum number of frames in an utterance; 0: no limit
  bool allow_commands = false;     // runs the commands in wav.scp; false: reports them as faults
  std::vector<std::string> parts;  // folders to check, for kaldi and librispeech; empty: all
};

// A check of the audio, features and labels of utterances. All recordings must have the same rate, and all
// features the same size.
class ContentCheck {
 public:
  explicit ContentCheck(SpeechCheckOptions checks = {});
  // Returns the faults of the utterance.
  Faults operator()(const Utterance& utterance);

 private:
  // Checks the recording or the features of the utterance, and returns the number of frames. If the utterance
  // has a command, runs the command and checks its output.
  int64_t check_audio(const Utterance& utterance);
  // Checks the file utterance.path, a recording or features, and returns the number of frames.
  int64_t check_recording(const Utterance& utterance);
  // Returns the phones of the utterance. Throws DataError if the lexicon does not contain a word.
  Words look_up_phones(const Utterance& utterance) const;
  void check_lengths(const Words& phones, int64_t frames) const;

  SpeechCheckOptions checks_;
  std::optional<Filterbank> filterbank_;
  int64_t dims_ = 0;
};

}  // namespace tapeformer
