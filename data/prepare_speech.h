// Makes Kaldi data directories of recordings and transcripts as people have them: finds the recording of
// every transcript, writes words as a lexicon has them, and divides the utterances into parts.
//
// Errors: ConfigError for options that make no sense; DataError with the file when nothing can be made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/transcripts.h"

namespace tapeformer {

struct PrepareOptions {
  std::filesystem::path audio;        // searched with all folders below it
  std::filesystem::path transcripts;  // a file or a folder (data/transcripts.h)
  std::filesystem::path out;
  std::vector<std::filesystem::path> lexicons;  // of two pronunciations, that of the earlier file is taken
  TranscriptColumns columns;
  // Where a transcript names no speaker: "folder" (the first below `audio`), "prefix" (of the file name, up
  // to the first - or _), "none" (every utterance has its own), "auto" (folder if there are several, else
  // none).
  std::string speakers = "auto";
  std::string split = "auto";      // by "speaker" or "utterance"; "auto": by speaker if there are 10 or more
  double valid = 0.1, test = 0.1;  // shares of the utterances
  uint64_t seed = 0;               // of the split
  bool propose = false;            // pronunciations of unknown words
  std::string program = "espeak-ng";
};

struct UnknownWord {
  std::string word, place;  // of the first
  int64_t count = 0;
};

struct PrepareReport {
  int64_t recordings = 0, transcripts = 0;  // found
  int64_t train = 0, valid = 0, test = 0;   // utterances written
  int64_t speakers = 0;
  int64_t with_unknown_words = 0;    // utterances left out
  int64_t without_transcript = 0;    // recordings
  int64_t proposed = 0;              // pronunciations
  std::vector<UnknownWord> unknown;  // the most frequent first
  std::map<int64_t, int64_t> rates;  // recordings by samples per second
  int64_t several_channels = 0;      // recordings
  Faults faults;                     // what else was left out, and why
  int64_t utterances() const { return train + valid + test; }
};

// Writes to options.out
// - train, valid and test: wav.scp, text (words) and utt2spk, which replace older ones;
// - lexicon.txt: the words of the texts with their phones, for data.lexicon;
// - unknown-words.txt: "count word place" of the words that no lexicon has, if there are any. Utterances with
// such
//   words are left out;
// - with options.propose, proposed-lexicon.txt: pronunciations of unknown words by espeak-ng, for a person to
//   review. Lines that are there stay. It is used only as one of options.lexicons.
PrepareReport prepare_speech(const PrepareOptions& options);

}  // namespace tapeformer
