// The options of data sets of speech.
#pragma once

#include <cstdint>
#include <string>

#include "core/options/options.h"
#include "data/sets/catalogue.h"
#include "data/speech/dataset.h"

namespace tapeformer {

struct SpeechDataOptions {
  std::string path = {};  // folder of the corpus; empty: its folder in the data directories
  int64_t validation = 0;
  int64_t max_frames = 20000;  // maximum number of frames in a batch, including padding
  // Folders of the training, validation and test data, relative to `path`; empty: default folders.
  std::string train_part = {}, valid_part = {}, test_part = {};
  std::string lexicon = {};  // pronunciation lexicon; empty: the default of the data set
  UnknownWordPolicy unknown_words = UnknownWordPolicy::refuse;
  bool reject_faulty_utterances = false;
  PhoneSet phone_set = PhoneSet::timit48;  // phone set for training on TIMIT; scores use 39 phones
  int64_t sample_rate = 0;                 // samples per second; 0: the default rate of the data set
  bool resample = false;
  int64_t channel = -1;       // index of the channel to read; -1: refuse recordings with several channels
  double max_seconds = 3600;  // maximum duration of a recording or segment in seconds; 0: no limit
  int64_t num_mel_bins = 40;
  double dither = 0;  // standard deviation of noise in training, in units of 16-bit samples
  int64_t deltas = 0;
  Normalization normalization = Normalization::utterance;
  bool normalize_variance = true;
  bool spec_augment = false;
  int64_t frequency_masks = 2, frequency_width = 10, time_masks = 2, time_width = 40;
  double time_share = 0.2;
  std::string feature_cache = {};  // folder of the cache; empty: features stay in memory
};

// Returns the options of a corpus of speech. Options that `values` lacks have their default.
SpeechDataOptions read_speech_options(const CatalogueEntry& set, const OptionValues& values);

}  // namespace tapeformer
