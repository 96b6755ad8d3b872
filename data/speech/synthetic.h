// A corpus of machine speech: sentences of a small grammar, spoken by espeak-ng, which runs as a program of
// its own, with noise added. It shows that a model learns; a phone error rate on it says nothing about
// people's speech.
//
// Errors: ConfigError for options that make no sense; DataError when espeak-ng is missing or fails.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/speech/phones.h"

namespace tapeformer {

// Name of the corpus in the table of data sets.
inline constexpr char kSyntheticSpeech[] = "synthetic-speech";

struct SyntheticSpeechOptions {
  int64_t train = 600, valid = 60, test = 60;  // sentences
  uint64_t seed = 0;
  int64_t rate = 16000;
  double quietest_noise_db = 40, loudest_noise_db = 15;  // signal to noise, uniform between them
  std::string program = "espeak-ng";
};

// The voices of a split, no two splits have one in common.
Words synthetic_voices(const std::string& split);

// `count` different sentences, without those that smaller numbers of `first` gave: splits take ranges of one
// list.
std::vector<Words> synthetic_sentences(uint64_t seed, int64_t first, int64_t count);

// espeak-ng's phonemes ("s_'E_v_@_n 'oU_l_d") without marks of stress and joining.
Words parse_espeak_phonemes(const std::string& text);

// Replaces folder/{train,valid,test} when all is made; until then it is in folder/.unfinished. These are
// Kaldi data directories whose text is phones, with the words in a file beside. The same options write the
// same files, however many threads run. Uses the pool of threads.
void make_synthetic_speech(const std::filesystem::path& folder, const SyntheticSpeechOptions& options);

}  // namespace tapeformer
