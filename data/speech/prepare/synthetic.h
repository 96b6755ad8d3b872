// A generator of synthetic speech. The program espeak-ng speaks random sentences of a small grammar, and
// noise is added to the recordings. The corpus is for tests of training. Its phone error rates are not
// comparable with error rates on human speech.
//
// Functions throw ConfigError for invalid options. They throw DataError if espeak-ng is missing or fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/phones/phones.h"

namespace tapeformer {

// Name of the corpus in the table of data sets.
inline constexpr char kSyntheticSpeech[] = "synthetic-speech";

struct SyntheticSpeechOptions {
  int64_t train_count = 600, valid_count = 60, test_count = 60;  // numbers of sentences
  uint64_t seed = 0;
  int64_t rate = 16000;
  double max_snr_db = 40, min_snr_db = 15;  // range of the signal-to-noise ratio in dB
  std::string espeak_program = "espeak-ng";
};

// Returns the voices of a split. The splits have no voice in common.
Words list_synthetic_voices(const std::string& split);

// Returns the sentences [first, first + count) of a list of distinct random sentences. `seed` determines the
// list.
std::vector<Words> generate_sentences(uint64_t seed, int64_t first, int64_t count);

// Converts the output of espeak-ng ("s_'E_v_@_n 'oU_l_d") to phonemes without stress marks and other marks.
Words parse_espeak_phonemes(const std::string& text);

// Writes the Kaldi data directories train, valid and test to `folder`. In each directory, the file `text`
// contains phones and the file `words` contains words. The data is generated in folder/.unfinished and
// replaces existing directories when it is complete. The files depend only on the options, not on the number
// of threads. Uses the thread pool.
void write_synthetic_speech(const std::filesystem::path& folder, const SyntheticSpeechOptions& options);

}  // namespace tapeformer
