// Speech corpora: lists of utterances with the paths of their audio or features and their transcripts. The
// readers support the layouts of common corpora and read only lists, no audio.
//
// Texts, ids and names of speakers are UTF-8.
//
// Throws DataError with the file and line of every fault. Missing or invalid labels of an utterance do not
// throw; `Utterance::fault` holds the reason, and callers skip or reject the utterance.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/faults.h"
#include "data/speech/lexicon.h"
#include "data/speech/phones.h"

namespace tapeformer {

enum class SpeechSource { audio, ark, mfc };

struct Utterance {
  std::string id, speaker;
  SpeechSource source = SpeechSource::audio;
  std::filesystem::path path;
  std::string command;        // for the shell: prints the recording, instead of a path
  double begin = 0;           // seconds of a recording, for audio
  std::optional<double> end;  // without it: the whole recording
  int64_t offset = 0;         // of the matrix in an ark
  Words words;                // what was said, where the corpus writes words
  Words phones;               // or where it writes phones, or after pronounce_words
  std::string fault;          // why its labels cannot be used; it has none then
  std::string place;          // where it is named: "list:line", or a file
};

struct Corpus {
  std::string name;
  std::vector<Utterance> utterances;
  int64_t dropped = 0;  // utterances that pronounce_words removed
};

// Utterances whose words the lexicon lacks: an error that lists the words, or left out.
enum class UnknownWords { refuse, drop };
struct PronounceReport {
  int64_t dropped = 0;
  Words unknown;  // sorted
};
// Fills the phones of every utterance that has only words.
PronounceReport pronounce_words(Corpus& corpus, const Lexicon& lexicon, UnknownWords unknown);

// CMU AN4 as features: etc/an4_{train,test}.{fileids,transcription}, feat/*.mfc, words to phones by
// etc/an4.dic. Split "train" or "test"; the speakers of both differ.
Corpus read_an4(const std::filesystem::path& folder, const std::string& split, Faults* faults = nullptr);

// Free Spoken Digits: recordings/DIGIT_SPEAKER_INDEX.wav at 8 kHz; "test" is index 0 to 4, "train" the rest.
// The words are the names of the digits.
Corpus read_spoken_digits(const std::filesystem::path& folder, const std::string& split,
                          Faults* faults = nullptr);

// TIMIT: "train" is the TRAIN folder, "test" the core test set of 24 speakers, without the SA sentences;
// phones of the .PHN files, folded. File names may be in upper or lower case.
Corpus read_timit(const std::filesystem::path& folder, const std::string& split, PhoneSet set,
                  Faults* faults = nullptr);

// LibriSpeech: SPLIT/reader/chapter/*.flac with *.trans.txt; words in upper case.
Corpus read_librispeech(const std::filesystem::path& folder, const std::string& split,
                        Faults* faults = nullptr);

// Features of a Sphinx .mfc file, (frames, dims): a big-endian count, then big-endian floats.
Tensor read_mfc(const std::filesystem::path& path, int64_t dims = 13);

}  // namespace tapeformer
