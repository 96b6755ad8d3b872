// Corpora of speech. A corpus is a list of utterances with their transcripts and the paths of their
// recordings or features. The functions that read a corpus do not open the recordings. Texts, ids and names
// of speakers are UTF-8.
//
// Functions throw DataError with the file and line of the first fault. If the parameter `faults` is not null,
// functions append a message for each faulty line or utterance to `faults` instead of throwing. If a required
// file or folder is missing, functions always throw DataError. Missing or invalid labels of an utterance do
// not throw; `Utterance::fault` contains the reason, and callers skip or reject the utterance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/files/faults.h"
#include "data/speech/kaldi_archive.h"
#include "data/speech/phones/lexicon.h"
#include "data/speech/phones/phones.h"

namespace tapeformer {

// Format of the file of an utterance: a recording, a Kaldi archive, or Sphinx features.
enum class SpeechSource { audio, ark, mfc };

struct Utterance {
  std::string id, speaker;
  SpeechSource source = SpeechSource::audio;
  std::filesystem::path path;
  std::string command;                // shell command that prints the recording; empty if `path` is set
  double begin_seconds = 0;           // start of the utterance in the recording, in seconds
  std::optional<double> end_seconds;  // end of the utterance, in seconds; std::nullopt: end of the recording
  std::optional<int64_t> channel;  // channel of the recording, from 0; std::nullopt: FeatureOptions::channel
  int64_t archive_offset = 0;      // byte offset of the matrix in an archive
  MatrixRange matrix_range;        // part of the matrix
  Words words;                     // transcript, if the corpus contains words
  Words phones;                    // phones of the transcript, from the corpus or from assign_phones()
  std::string fault;               // reason why the labels cannot be used, or empty
  // Location for error messages: "path:line" of the line that lists the utterance. If the corpus has no list
  // of utterances, the location is the path of the recording or label file.
  std::string location;
};

// Returns the files that contain the utterance and its transcript: the recording or features, and the lists
// of the corpus. Some of the paths do not exist.
std::vector<std::filesystem::path> list_input_files(const Utterance& utterance);

struct Corpus {
  std::string name;
  std::vector<Utterance> utterances;
  int64_t dropped_count = 0;  // number of utterances that assign_phones removed
};

// Treatment of utterances with words that the lexicon lacks: `refuse` throws DataError with a list of the
// words, and `drop` removes the utterances.
enum class UnknownWordPolicy { refuse, drop };
struct PhoneAssignmentReport {
  int64_t dropped_count = 0;  // number of removed utterances
  Words unknown_words;        // sorted list of unknown words
};
// Sets the phones of all utterances that have words but no phones. The phones of a word are read from its
// entry in the lexicon. Returns the number of utterances that were dropped and the words that the lexicon
// does not contain.
PhoneAssignmentReport assign_phones(Corpus& corpus, const Lexicon& lexicon, UnknownWordPolicy unknown);

// Reads the features of CMU AN4: etc/an4_{train,test}.{fileids,transcription} and feat/*.mfc. The phones of
// words are in etc/an4.dic. `split` is "train" or "test"; the speakers of the splits differ.
Corpus read_an4(const std::filesystem::path& folder, const std::string& split, Faults* faults = nullptr);

// Reads Free Spoken Digits: recordings/DIGIT_SPEAKER_INDEX.wav at 8 kHz. The split "test" has the indices 0
// to 4, and "train" has all other indices. The words are the names of the digits.
Corpus read_spoken_digits(const std::filesystem::path& folder, const std::string& split,
                          Faults* faults = nullptr);

// Reads TIMIT. The split "train" is the folder TRAIN, and "test" is the core test set of 24 speakers. SA
// sentences are left out. The phones of the .PHN files are mapped to `set`. File names can be in upper or
// lower case.
Corpus read_timit(const std::filesystem::path& folder, const std::string& split, PhoneSet set,
                  Faults* faults = nullptr);

// Reads a part of LibriSpeech: SPLIT/reader/chapter/*.flac and *.trans.txt. Words are in upper case.
Corpus read_librispeech(const std::filesystem::path& folder, const std::string& split,
                        Faults* faults = nullptr);

// Returns the features in a Sphinx .mfc file, (frames, dims) float32. The file contains the number of values,
// followed by the values, in big-endian order.
Tensor read_mfc(const std::filesystem::path& path, int64_t dims = 13);

}  // namespace tapeformer
