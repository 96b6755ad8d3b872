// Functions that check single utterances. The checks read audio and compute features with the code that
// training uses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/speech/corpus.h"
#include "data/speech/feature_store.h"

namespace tapeformer {

// Options of UtteranceChecker. The default options do not require a lexicon or a model. If `lexicon` is set,
// UtteranceChecker also checks whether the utterances match the lexicon. If `subsampling` or `max_frames` is
// set, UtteranceChecker also checks whether the utterances match the model.
struct SpeechCheckOptions {
  FeatureOptions feature_options;
  // If true, all recordings must have the rate of the first recording. If false, recordings must have the
  // rate feature_options.filterbank.rate, unless feature_options.resample is true.
  bool infer_sample_rate = true;
  // If not null, this lexicon must contain all words of utterances without phones.
  std::shared_ptr<const Lexicon> lexicon;
  // If true and `lexicon` is null, the words of an utterance without phones are used as its phones.
  bool words_are_phones = false;
  // Number of frames per step of the encoder. If positive, utterances with fewer steps than CTC needs for
  // their labels are reported as faults.
  int64_t subsampling = 0;
  int64_t max_frames = 0;       // maximum number of frames in an utterance; 0: no limit
  bool allow_commands = false;  // runs the commands in wav.scp; false: reports them as faults
  // Names of the folders to check in LibriSpeech or in a folder of Kaldi data directories. If the list is
  // empty, all folders are checked. Other corpora ignore the list.
  std::vector<std::string> parts;
};

// A function object that checks the audio, features and labels of utterances. The features of all utterances
// must have the same number of dimensions.
class UtteranceChecker {
 public:
  explicit UtteranceChecker(SpeechCheckOptions options = {});
  Faults operator()(const Utterance& utterance);

  // Returns the rate of the recordings, or 0 if no recording has been checked.
  int64_t sample_rate() const { return has_recordings_ ? filterbank_->options().rate : 0; }
  // Returns whether infer_sample_rate is true and a recording has another rate than the first recording.
  bool have_rates_differed() const { return have_rates_differed_; }
  // Returns the result of describe_cuts() for the checked utterances.
  std::string describe_cuts() const { return tapeformer::describe_cuts(cuts_); }

 private:
  // Checks the recording or features of the utterance. If the utterance has a command, runs the command and
  // checks its output. Returns the number of frames. Throws DataError at the first fault.
  int64_t check_audio(const Utterance& utterance);
  int64_t check_file(const Utterance& utterance);
  Words look_up_phones(const Utterance& utterance) const;
  void check_lengths(const Words& phones, int64_t frames) const;

  SpeechCheckOptions options_;
  std::optional<Filterbank> filterbank_;
  bool has_recordings_ = false, have_rates_differed_ = false;
  std::vector<FeatureCut> cuts_;
  int64_t dims_ = 0;
};

}  // namespace tapeformer
