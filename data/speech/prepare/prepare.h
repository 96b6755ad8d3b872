// Preparation of Kaldi data directories from a folder of recordings and a table or folder of transcripts.
// prepare_speech() matches recordings and transcripts, normalises the words, and divides the utterances into
// train, valid and test.
//
// prepare_speech() throws ConfigError for invalid options, DataError if no utterance can be used, and
// FileError if an output file or folder cannot be written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/speech/transcripts.h"

namespace tapeformer {

struct SpeechPreparationOptions {
  std::filesystem::path audio_folder;     // folder of recordings, including its subfolders
  std::filesystem::path transcript_path;  // file or folder of transcripts; see read_transcripts()
  std::filesystem::path output_folder;
  std::vector<std::filesystem::path> lexicon_paths;  // lexicons in decreasing order of precedence
  TranscriptColumns columns;
  // Determines the speaker if a transcript does not name a speaker:
  // - "folder": the speaker is the top-level folder below `audio_folder` that contains the recording.
  // - "prefix": the speaker is the part of the file name before the first - or _.
  // - "none": every utterance has a different speaker.
  // - "auto": If all recordings are in folders below `audio_folder`, there are at least two top-level
  //   folders, and at least one of these folders contains several recordings, the rule is "folder".
  //   Otherwise, the rule is "none".
  std::string speaker_rule = "auto";
  // Unit of the split. With "speaker", all utterances of a speaker are in the same split. With "utterance",
  // each utterance is assigned separately. "auto" selects "speaker" if there are at least 10 speakers, and
  // "utterance" otherwise.
  std::string split_unit = "auto";
  double valid_share = 0.1, test_share = 0.1;  // shares of the utterances in valid and test
  uint64_t seed = 0;                           // seed of the split
  bool propose_pronunciations = false;         // writes proposed pronunciations of unknown words
  std::string espeak_program = "espeak-ng";    // program that proposes pronunciations
};

struct UnknownWord {
  std::string word;
  std::string location;  // location of the first occurrence
  int64_t count = 0;
};

struct SpeechPreparationReport {
  int64_t recording_count = 0, transcript_count = 0;
  int64_t train_count = 0, valid_count = 0, test_count = 0;  // number of utterances in each split
  int64_t speaker_count = 0;
  int64_t unknown_word_utterance_count = 0;             // utterances left out due to unknown words
  int64_t untranscribed_recording_count = 0;            // recordings without a transcript
  int64_t proposed_pronunciation_count = 0;             // number of words added to proposed-lexicon.txt
  std::vector<UnknownWord> unknown_words;               // in decreasing order of count
  std::map<int64_t, int64_t> recording_counts_by_rate;  // number of recordings for each rate in Hz
  int64_t multichannel_count = 0;                       // recordings with several channels
  Faults faults;  // reasons other than unknown words why transcripts were left out
  int64_t utterance_count() const { return train_count + valid_count + test_count; }
};

// Writes to options.output_folder:
// - train, valid and test: Kaldi data directories with wav.scp, text (words) and utt2spk. Existing Kaldi data
//   directories with these names are replaced.
// - lexicon.txt: the words of the texts with their phones. An existing file is replaced only if the folder
//   also contains a prepared part.
// - unknown-words.txt: lines "count word location" for the words that no lexicon contains, if there are any.
//   Utterances with unknown words are left out of the data directories. An existing file is replaced or
//   removed only if it is such a list.
// - proposed-lexicon.txt: pronunciations of unknown words by espeak-ng, which the user should review. The
//   file is written only if options.propose_pronunciations is true. Existing lines of the file are kept. To
//   use the pronunciations, add the path of the file to options.lexicon_paths.
// Throws ConfigError, and writes nothing, if one of these files is a transcript, lexicon or recording that is
// read; see refuse_to_replace_inputs().
SpeechPreparationReport prepare_speech(const SpeechPreparationOptions& options);

}  // namespace tapeformer
